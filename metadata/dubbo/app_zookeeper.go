package dubbo

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// ZooKeeperApp is the application-level format as Dubbo stores it in
// ZooKeeper:
//
//	/services/<application>/<ip:port>    {"name":"<application>","id":"<ip:port>","address":"<ip>","port":20000,
//	      "payload":{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":…,"name":…,"metadata":{
//	      "dubbo.endpoints":"[{\"port\":20000,\"protocol\":\"tri\"}]","dubbo.metadata.revision":"<revision>",
//	      "dubbo.metadata.storage-type":"remote","xdsb":"<mark>", …}}}      what Curator writes
//	/dubbo/mapping/<interface>           <application>,<application>        shared: a word is added, none is removed
//	/dubbo/metadata/<application>/<revision>    where Java looks, and
//	/dubbo/<application>/<revision>             where dubbo-go looks:
//	      {"app":"<application>","revision":"<revision>","services":{"[<group>/]<interface>[:<version>]:tri":
//	      {"name":"<interface>","group":…,"version":…,"protocol":"tri","path":"<interface>","params":{…}}}}
//
// One entry that is no instance of Dubbo makes consumers of the application
// fail, and one of ours those of Spring Cloud, which uses the same parents: so
// nothing is written to a parent that holds another's format.
//
// An Entry of an instance has the JSON as its value and the node's name as its
// key.
type ZooKeeperApp struct{ o Options }

const instanceClass = "org.apache.dubbo.registry.zookeeper.ZookeeperInstance"

// NewZooKeeperApp returns the codec of the application-level format in
// ZooKeeper. The error names every option that cannot be used.
func NewZooKeeperApp(o Options) (*ZooKeeperApp, error) {
	o, err := defaults(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", KindApplication, err)
	}
	if o.MaxMetadata <= 0 {
		o.MaxMetadata = maxURL
	}
	o.MaxMetadata -= o.Reserve
	return &ZooKeeperApp{o: o}, nil
}

// Encode implements metadata.Codec.
func (z *ZooKeeperApp) Encode(s *registry.Service) ([]registry.Entry, error) {
	return z.o.encodeApps(s, z)
}

// Dependencies implements metadata.Codec: what the instances provide is elsewhere.
func (*ZooKeeperApp) Dependencies(entries []registry.Entry) []metadata.Ref {
	return dependencies(entries, hearCurator)
}

// Decode implements metadata.Codec.
func (*ZooKeeperApp) Decode(entries, extras []registry.Entry) ([]*registry.Service, []metadata.DecodeError) {
	return decodeApps(entries, extras, hearCurator)
}

func (z *ZooKeeperApp) group(app string) registry.Group {
	return registry.Group{Kind: KindApplication, Namespace: z.o.Services, Name: app}
}

// curator is a service instance as Curator stores it. Only what every reader
// needs is written.
type curator struct {
	Name    string  `json:"name"`
	ID      string  `json:"id"`
	Address string  `json:"address"`
	Port    uint16  `json:"port"`
	Payload payload `json:"payload"`
	Enabled *bool   `json:"enabled,omitempty"`
}

type payload struct {
	Class    string            `json:"@class"`
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Metadata map[string]string `json:"metadata"`
}

// instance implements appForm. An error beside an entry reports metadata that
// was left out.
func (z *ZooKeeperApp) instance(s *registry.Service, app string, in *instance) (registry.Entry, error) {
	meta, dropped, err := in.metadataOf(z.o.MaxMetadata)
	if err != nil {
		return registry.Entry{}, err
	}
	id := hostPort(in.host, in.port)
	if d := distinction(s); d != "" {
		id += "~" + d
	}
	c := curator{
		Name: app, ID: id, Address: in.host, Port: in.port,
		Payload: payload{Class: instanceClass, ID: id, Name: app, Metadata: meta},
	}
	return registry.Entry{Group: z.group(app), Key: id, Value: metadata.JSON(c)}, in.tooMuch(z.o.MaxMetadata, dropped)
}

func (in *instance) tooMuch(limit int, dropped []string) error {
	return tooMuch(in.protocols[0].protocol, hostPort(in.host, in.port), limit, dropped)
}

func (z *ZooKeeperApp) reports(app, revision, text string) []registry.Entry {
	g := z.group(app)
	return []registry.Entry{
		{Group: g, Key: keyMetadata + revision, Value: text},
		{Group: g, Key: keyMetadata + revision + keyGo, Value: text},
	}
}

// checkMapping implements appForm: any interface can be a node.
func (*ZooKeeperApp) checkMapping(iface string) error {
	if strings.Contains(iface, "/") {
		return fmt.Errorf("interface %q cannot be a node", iface)
	}
	return nil
}

// hearCurator reads an instance.
func hearCurator(e registry.Entry) (received, error) {
	var c curator
	if err := json.Unmarshal([]byte(e.Value), &c); err != nil {
		return received{}, fmt.Errorf("%.80q: %w", e.Value, err)
	}
	if c.Payload.Class != instanceClass {
		return received{}, fmt.Errorf("payload of class %.80q: %w", c.Payload.Class, errForeign)
	}
	h := received{entry: e, host: c.Address, port: c.Port, metadata: c.Payload.Metadata}
	if c.Enabled != nil && !*c.Enabled {
		h.health = registry.Disabled
	}
	return h, nil
}
