package springcloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/convert"
	"github.com/xds-bridge/xds-bridge/metadata/instance"
)

const (
	class  = "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance"
	prefix = "xdsb-"
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
// or without one makes all consumers fail. One of ours in a parent of Dubbo's
// application-level format keeps Dubbo's consumers from starting, so nothing is written
// to such a parent. Curator watches the data.
func NewZooKeeper(o instance.Options) (*instance.ZooKeeper, error) {
	own := func(i instance.Instance) map[string]string {
		return grpcPort(i, map[string]string{keyStatus: statusUp})
	}
	f := form(own, extract)
	f.Weightless = true
	return instance.NewZooKeeper(instance.NodeForm{ //nolint:wrapcheck // names the format
		Form: f, Prefix: prefix, Replaces: metadata.InPlace, Write: write, Read: read, Foreign: foreign,
	}, o)
}

// curator is the JSON of Curator's service discovery, its fields in the order
// that Spring's client writes them.
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
		URI:     uriSpec{Parts: []uriPart{{"scheme", true}, {"://", false}, {"address", true}, {":", false}, {"port", true}}},
	}
	if convert.Secure(first.Protocol) {
		c.SSLPort = &first.Port
	}
	return metadata.JSON(c)
}

// host puts an IPv6 address in brackets, as in a URI.
func host(s string) string {
	if strings.Contains(s, ":") {
		return "[" + s + "]"
	}
	return s
}

var errPort = errors.New("has neither a port nor an sslPort")

func read(_ string, data []byte) (instance.Instance, error) {
	var c curator
	if err := json.Unmarshal(data, &c); err != nil {
		return instance.Instance{}, fmt.Errorf("is no JSON of Curator: %w", err)
	}
	i := instance.Instance{Service: c.Name}
	if c.Payload != nil {
		if c.Payload.Class != class {
			return instance.Instance{}, fmt.Errorf("its payload is of class %.120q and not of Spring Cloud's", c.Payload.Class)
		}
		i.Metadata = c.Payload.Metadata
	}
	p := instance.Port{Protocol: "http", Host: strings.Trim(c.Address, "[]")}
	switch {
	case c.SSLPort != nil && *c.SSLPort != 0:
		p.Port, p.Protocol = *c.SSLPort, "https"
	case c.Port != nil:
		p.Port = *c.Port
	default:
		return instance.Instance{}, errPort
	}
	i.Ports = []instance.Port{p}
	return i, nil
}

// foreign returns of which other format a node is; nil if of this one, or unreadable.
func foreign(data []byte) error {
	var c curator
	if err := json.Unmarshal(data, &c); err == nil && c.Payload != nil && c.Payload.Class != class && c.Payload.Class != "" {
		return fmt.Errorf("is of class %.120q and not of Spring Cloud's", c.Payload.Class)
	}
	return nil
}
