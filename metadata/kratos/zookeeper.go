package kratos

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
)

const prefix = "xdsb-"

// NewZooKeeper returns the codec of the format as the registry of Kratos stores it in
// ZooKeeper:
//
//	/microservices/<name>/<id>
//	{"id":"<id>","name":"<name>","version":"v1","metadata":{…,"xdsb":"<mark>"},
//	 "endpoints":["grpc://10.0.0.1:9000","http://10.0.0.1:8000"]}
//
// All ports of an instance are one node. Our id is xdsb-<host>:<port>, because Kratos
// deletes the node of its own id. A node that is not JSON makes all consumers of the
// service fail. Consumers watch only the names of the nodes, and read the data when the
// names change.
func NewZooKeeper(o instance.Options) (*instance.ZooKeeper, error) {
	return instance.NewZooKeeper(instance.NodeForm{
		Form: instance.Form{
			Kind: Kind, Speaks: speaks, Joins: func([]instance.Port) bool { return true },
			Own: ownWeight, Extract: extractWeight, Reserved: []string{keyWeight},
		},
		Prefix: prefix, Replaces: metadata.Recreated, Write: write, Read: read, Foreign: foreign,
	}, o)
}

type node struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Version   string            `json:"version"`
	Metadata  map[string]string `json:"metadata"`
	Endpoints []string          `json:"endpoints"`
	AppID     string            `json:"appid,omitempty"` // of Kratos 1
}

func write(i instance.Instance) string {
	n := node{ID: prefix + i.Key(), Name: i.Service, Version: i.Metadata[keyVersion], Metadata: maps.Clone(i.Metadata)}
	delete(n.Metadata, keyVersion)
	for _, p := range i.Ports {
		n.Endpoints = append(n.Endpoints, convert.Scheme(p.Protocol)+"://"+p.Address())
	}
	slices.Sort(n.Endpoints)
	return metadata.JSON(n)
}

var (
	errNoEndpoint = errors.New("has no endpoint")
	errVersion1   = errors.New("is of Kratos 1, whose form no format of the bridge reads; " +
		"move the application to Kratos 2, or let it also register in another format")
	errCurator = errors.New("is of Curator and not of Kratos")
)

func read(_ string, data []byte) (instance.Instance, error) {
	var n node
	if err := json.Unmarshal(data, &n); err != nil {
		return instance.Instance{}, fmt.Errorf("is not JSON of Kratos: %w", err)
	}
	switch {
	case len(n.Endpoints) == 0 && n.AppID != "":
		return instance.Instance{}, errVersion1
	case len(n.Endpoints) == 0:
		return instance.Instance{}, errNoEndpoint
	}
	i := instance.Instance{Service: n.Name, Metadata: n.Metadata}
	if n.Version != "" {
		i.Metadata = maps.Clone(n.Metadata)
		if i.Metadata == nil {
			i.Metadata = make(map[string]string)
		}
		i.Metadata[keyVersion] = n.Version
	}
	var bad error
	for _, e := range n.Endpoints {
		if p, err := parseEndpoint(e); err != nil {
			bad = err
		} else {
			i.Ports = append(i.Ports, p)
		}
	}
	if len(i.Ports) == 0 {
		return instance.Instance{}, bad
	}
	instance.SortPorts(i.Ports)
	return i, nil
}

// parseEndpoint parses grpc://host:port. Old versions of Kratos write ?isSecure=true
// instead of grpcs.
func parseEndpoint(s string) (instance.Port, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" {
		return instance.Port{}, fmt.Errorf("endpoint %.80q is not a URL", s)
	}
	p, err := instance.ParseAddress(u.Host)
	if err != nil {
		return instance.Port{}, fmt.Errorf("endpoint %.80q: %w", s, err)
	}
	p.Protocol = strings.ToLower(u.Scheme)
	if u.Query().Get("isSecure") == "true" && !convert.Secure(p.Protocol) {
		p.Protocol += "s"
	}
	return p, nil
}

// foreign returns an error that names the other format of a node. It is nil if the node
// is of this format or unreadable.
func foreign(data []byte) error {
	var other struct {
		Payload   *json.RawMessage `json:"payload"`
		Endpoints *json.RawMessage `json:"endpoints"`
	}
	if err := json.Unmarshal(data, &other); err == nil && other.Payload != nil && other.Endpoints == nil {
		return errCurator
	}
	return nil
}
