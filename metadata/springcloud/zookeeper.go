package springcloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
	"github.com/xds-bridge/xds-bridge/registry"
)

const (
	class      = "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance"
	classDubbo = "org.apache.dubbo.registry.zookeeper.ZookeeperInstance"
	prefix     = "xdsb-"
)

// NewZooKeeper returns the codec of the format as Spring Cloud Zookeeper 4.1 stores it,
// in the JSON of Curator:
//
//	/services/<spring.application.name>/<id>
//	{"name":"orders","id":"<id>","address":"10.0.0.1","port":8080,"sslPort":null,
//	 "payload":{"@class":"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance",
//	   "id":"orders","name":"orders","metadata":{"instance_status":"UP"[,"gRPC_port":"9090"],…,"xdsb":"<mark>"}},
//	 "registrationTimeUTC":0,"serviceType":"DYNAMIC","uriSpec":{"parts":[…]}}
//
// Spring writes a random id; ours is always xdsb-<host>:<port>. One node of another class
// or without a class makes all consumers fail. One of our nodes in a parent of Dubbo's
// application-level format would keep Dubbo's consumers from starting. So nothing is
// written to such a parent. Curator watches the data.
func NewZooKeeper(o instance.Options) (*instance.ZooKeeper, error) {
	own := func(i instance.Instance) map[string]string {
		return grpcPort(i, map[string]string{keyStatus: statusUp})
	}
	f := commonForm(own, extract)
	f.Weightless, f.Paths = true, true
	return instance.NewZooKeeper(instance.NodeForm{
		Form: f, Prefix: prefix, Replaces: metadata.InPlace, Write: write, Read: read, Foreign: foreign,
	}, o)
}

// curator is the JSON of Curator's service discovery as it is written. Its fields are in
// the order of Spring's client.
type curator struct {
	Name       string   `json:"name"`
	ID         string   `json:"id"`
	Address    string   `json:"address"`
	Port       *uint16  `json:"port"`
	SSLPort    *uint16  `json:"sslPort"`
	Payload    *payload `json:"payload"`
	Registered int64    `json:"registrationTimeUTC"`
	Type       string   `json:"serviceType"`
	URI        uriSpec  `json:"uriSpec"`
}

type payload struct {
	Class    string            `json:"@class"`
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Metadata map[string]string `json:"metadata"`
}

type uriSpec struct {
	Parts []uriPart `json:"parts"`
}

type uriPart struct {
	Value    string `json:"value"`
	Variable bool   `json:"variable"`
}

func write(i instance.Instance) string {
	first := i.Ports[0]
	c := curator{
		Name: i.Service, ID: prefix + i.Key(), Address: host(first.Host), Port: &first.Port, Type: "DYNAMIC",
		Payload: &payload{Class: class, ID: i.Service, Name: i.Service, Metadata: i.Metadata},
		URI: uriSpec{Parts: []uriPart{
			{"scheme", true}, {"://", false}, {"address", true}, {":", false}, {"port", true},
		}},
	}
	if convert.Secure(first.Protocol) {
		c.SSLPort = &first.Port
	}
	if i.Path != "" {
		c.URI.Parts = append(c.URI.Parts, uriPart{Value: "/" + i.Path})
	}
	return metadata.JSON(c)
}

// host returns a host as in a URI: an IPv6 address in brackets.
func host(s string) string {
	if strings.Contains(s, ":") {
		return "[" + s + "]"
	}
	return s
}

// found is the JSON of any program that uses Curator's service discovery. Each program
// has its own type of payload. A missing port is null, 0 or -1.
type found struct {
	Name    string          `json:"name"`
	Address string          `json:"address"`
	Port    int64           `json:"port"`
	SSLPort int64           `json:"sslPort"`
	Payload json.RawMessage `json:"payload"`
	URI     *uriSpec        `json:"uriSpec"`
	Enabled *bool           `json:"enabled"` // since Curator 2.12, if its serializer is configured to write it
}

// metadata returns the metadata of an instance of Spring Cloud. It is empty without a
// payload, which consumers accept. The error names the class of another payload.
func (f *found) metadata() (map[string]string, error) {
	if len(f.Payload) == 0 || string(f.Payload) == "null" {
		return nil, nil
	}
	var p payload
	err := json.Unmarshal(f.Payload, &p)
	switch {
	case p.Class == classDubbo:
		return nil, fmt.Errorf("its payload is of class %.120q; read it as dubbo-application", p.Class)
	case p.Class != "" && p.Class != class:
		return nil, fmt.Errorf("its payload is of class %.120q and not of Spring Cloud's; %s", p.Class, remedy)
	case p.Class == "":
		return nil, fmt.Errorf("its payload %.60q is not of Spring Cloud's class; %s", f.Payload, remedy)
	case err != nil:
		return nil, fmt.Errorf("its payload: %w", err)
	}
	return p.Metadata, nil
}

// maxPath bounds the cost of one hostile node.
const maxPath = 512

// path returns the URL path of an instance: the part of its uriSpec after the last
// variable.
func (f *found) path() string {
	if f.URI == nil {
		return ""
	}
	path := ""
	for _, p := range f.URI.Parts {
		path += p.Value
		if p.Variable {
			path = ""
		}
	}
	if len(path) > maxPath {
		return ""
	}
	return strings.Trim(path, "/")
}

// remedy is what an operator can do about other payloads.
const remedy = "no format of the bridge reads it; register it without a payload, or with that of Spring Cloud"

var errPort = errors.New("has neither a port nor an sslPort")

func read(_ string, data []byte) (instance.Instance, error) {
	var f found
	if err := json.Unmarshal(data, &f); err != nil {
		return instance.Instance{}, fmt.Errorf("is not JSON of Curator: %w", err)
	}
	p := instance.Port{Protocol: "http", Host: strings.Trim(f.Address, "[]")}
	port := f.Port
	if f.SSLPort > 0 {
		port, p.Protocol = f.SSLPort, "https"
	}
	switch {
	case port <= 0:
		return instance.Instance{}, errPort
	case port > math.MaxUint16:
		return instance.Instance{}, fmt.Errorf("port %d is not within 1 to 65535", port)
	}
	p.Port = uint16(port)
	all, err := f.metadata()
	if err != nil {
		return instance.Instance{}, err
	}
	i := instance.Instance{Service: f.Name, Metadata: all, Ports: []instance.Port{p}, Path: f.path()}
	if f.Enabled != nil && !*f.Enabled {
		i.Health = registry.Disabled
	}
	return i, nil
}

// foreign returns an error that names the class of a node of another format. It is nil
// if the node is of this format or unreadable.
func foreign(data []byte) error {
	var c struct {
		Payload struct {
			Class string `json:"@class"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(data, &c); err == nil && c.Payload.Class != class && c.Payload.Class != "" {
		return fmt.Errorf("is of class %.120q and not of Spring Cloud's", c.Payload.Class)
	}
	return nil
}
