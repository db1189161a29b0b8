package dubbo

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// ZooKeeperApp is the application-level format as Dubbo stores it in ZooKeeper:
//
//	/services/<application>/<ip:port>    {"name":"<application>","id":"<ip:port>","address":"<ip>","port":20000,
//	      "payload":{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":…,"name":…,"metadata":{
//	      "dubbo.endpoints":"[{\"port\":20000,\"protocol\":\"tri\"}]","dubbo.metadata.revision":"<revision>",
//	      "dubbo.metadata.storage-type":"remote","xdsb":"<mark>", …}}}      what Curator writes
//	/dubbo/mapping/<interface>           <application>,<application>        shared: applications are only added
//	/dubbo/metadata/<application>/<revision>    where Java looks, and
//	/dubbo/<application>/<revision>             where dubbo-go looks:
//	      {"app":"<application>","revision":"<revision>","services":{"[<group>/]<interface>[:<version>]:tri":
//	      {"name":"<interface>","group":…,"version":…,"protocol":"tri","path":"<interface>","params":{…}}}}
//
// One node that is not an instance of Dubbo makes consumers of the application fail.
// One instance of Dubbo makes consumers of Spring Cloud fail, which uses the same
// parents. So nothing is written to a parent with another format.
//
// The entry of an instance has the JSON as its value and the node's name as its key.
type ZooKeeperApp struct{ o options }

const instanceClass = "org.apache.dubbo.registry.zookeeper.ZookeeperInstance"

// NewZooKeeperApp returns the codec of the application-level format in ZooKeeper. The
// error names every invalid option.
func NewZooKeeperApp(o Options) (*ZooKeeperApp, error) {
	all, err := withDefaults(o, KindApplication, maxURL)
	if err != nil {
		return nil, err
	}
	return &ZooKeeperApp{all}, nil
}

// Encode implements metadata.Codec.
func (z *ZooKeeperApp) Encode(s *registry.Service) ([]registry.Entry, error) {
	return z.o.encodeApps(s, z)
}

// Dependencies implements metadata.Codec: instances depend on documents.
func (*ZooKeeperApp) Dependencies(entries []registry.Entry) []metadata.Ref {
	return dependencies(entries, parseCurator)
}

// Decode implements metadata.Codec.
func (*ZooKeeperApp) Decode(entries, extras []registry.Entry) ([]*registry.Service, []metadata.DecodeError) {
	return decodeApps(entries, extras, parseCurator)
}

func (z *ZooKeeperApp) group(app string) registry.Group {
	return registry.Group{Kind: KindApplication, Namespace: z.o.Root, Name: app}
}

// curator is a service instance as Curator stores it.
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

// instance implements appForm.
func (z *ZooKeeperApp) instance(in *instance, app, distinction string) (registry.Entry, error) {
	params, dropped, err := in.metadataWithin(z.o.limit)
	if err != nil {
		return registry.Entry{}, err
	}
	id := in.address
	if distinction != "" {
		id += "~" + distinction
	}
	return registry.Entry{Group: z.group(app), Key: id, Value: curatorJSON(in, app, id, params)},
		in.droppedError(z.o.limit, dropped)
}

// curatorJSON encodes an instance like Curator, without reflection.
func curatorJSON(in *instance, app, id string, params []param) string {
	b := in.buffers.text[:0]
	b = metadata.AppendText(append(b, `{"name":`...), app)
	b = metadata.AppendText(append(b, `,"id":`...), id)
	b = metadata.AppendText(append(b, `,"address":`...), in.endpoint.Host)
	b = strconv.AppendUint(append(b, `,"port":`...), uint64(in.endpoint.Port), 10)
	b = append(b, `,"payload":{"@class":"`+instanceClass+`","id":`...)
	b = metadata.AppendText(b, id)
	b = metadata.AppendText(append(b, `,"name":`...), app)
	n, field := fieldsOf(params)
	b = metadata.AppendObject(append(b, `,"metadata":`...), n, field)
	return string(append(b, "}}"...))
}

func (z *ZooKeeperApp) documents(app, revision, text string) []registry.Entry {
	g := z.group(app)
	return []registry.Entry{
		{Group: g, Key: keyMetadata + revision, Value: text},
		{Group: g, Key: keyMetadata + revision + keyGo, Value: text},
	}
}

// checkMapping implements appForm: the interface must be the name of a node.
func (*ZooKeeperApp) checkMapping(iface string) error {
	if strings.Contains(iface, "/") {
		return fmt.Errorf("interface %q cannot be a node", iface)
	}
	return nil
}

// parseCurator decodes an instance of Curator.
func parseCurator(e registry.Entry) (registration, error) {
	var c curator
	if err := json.Unmarshal([]byte(e.Value), &c); err != nil {
		if _, isOther := errors.AsType[*json.UnmarshalTypeError](err); isOther { // the payload of another program
			err = fmt.Errorf("%w: %w", errForeign, err)
		}
		return registration{}, fmt.Errorf("%.80q: %w", e.Value, err)
	}
	if c.Payload.Class != instanceClass {
		return registration{}, fmt.Errorf("payload of class %.80q: %w", c.Payload.Class, errForeign)
	}
	r := registration{entry: e, host: c.Address, port: c.Port, metadata: c.Payload.Metadata}
	if c.Enabled != nil && !*c.Enabled {
		r.health = registry.Disabled
	}
	return r, nil
}

// Kind returns the name of the format, which is the Kind of its groups.
func (*ZooKeeperApp) Kind() string { return KindApplication }

// Parents returns the pattern of the parents that hold instances.
func (z *ZooKeeperApp) Parents() string { return z.o.Root + "/*" }

// Parent returns the parent of the instances of a group. It fails for a name that cannot
// be an application, and for a group of another format or root.
func (z *ZooKeeperApp) Parent(g registry.Group) (string, error) {
	if g != z.group(g.Name) {
		return "", fmt.Errorf("group %s is not of %s:%s", g, KindApplication, z.o.Root)
	}
	if err := checkApplication(g.Name); err != nil {
		return "", err
	}
	return z.o.Root + "/" + g.Name, nil
}

// Group returns the group of a parent; false if the parent is not of this format.
func (z *ZooKeeperApp) Group(parent string) (registry.Group, bool) {
	app, ok := strings.CutPrefix(parent, z.o.Root+"/")
	return z.group(app), ok && checkApplication(app) == nil
}

// HasData reports whether nodes of this format have data, which is always true.
func (*ZooKeeperApp) HasData() bool { return true }

// Replaces returns that instances change in place: consumers watch their data.
func (*ZooKeeperApp) Replaces() metadata.Replacement { return metadata.InPlace }

// documentParents returns the parents of the documents of an application: that of Java
// and that of dubbo-go.
func (z *ZooKeeperApp) documentParents(app string) (java, golang string) {
	return z.o.Documents + "/metadata/" + app, z.o.Documents + "/" + app
}

// OtherParents returns the parents of a group's nodes in addition to Parent. Nodes in
// them are named by their paths.
func (z *ZooKeeperApp) OtherParents(g registry.Group) []string {
	java, golang := z.documentParents(g.Name)
	return []string{java, golang}
}

// Places returns the paths at which a dependency may be stored. The first that exists
// counts.
func (z *ZooKeeperApp) Places(ref metadata.Ref) []string {
	revision, ok := ParseMetadataRevision(ref.Key)
	if !ok || strings.Contains(revision, "/") {
		return nil
	}
	java, golang := z.documentParents(ref.Group.Name)
	return []string{java + "/" + revision, golang + "/" + revision}
}

// Node returns the name and the data of the node that stores an entry. In another parent
// the path replaces the name. It fails for an element of a mapping, which is not a node.
func (z *ZooKeeperApp) Node(e registry.Entry) (name string, data []byte, err error) {
	if revision, ok := ParseMetadataRevision(e.Key); ok {
		java, golang := z.documentParents(e.Group.Name)
		if r, ok := strings.CutSuffix(revision, keyGo); ok {
			return golang + "/" + r, []byte(e.Value), nil
		}
		return java + "/" + revision, []byte(e.Value), nil
	}
	if registry.IsPart(e.Key) || e.Key == "" {
		return "", nil, fmt.Errorf("%.80q %w", e.Key, errValue)
	}
	return e.Key, []byte(e.Value), nil
}

// Element returns the path of a shared list, and the element of the list that is the
// entry. Both are empty for an entry that is a node.
func (z *ZooKeeperApp) Element(e registry.Entry) (path, element string) {
	iface, ok := strings.CutPrefix(e.Key, keyMapping)
	if !ok {
		return "", ""
	}
	return z.o.Documents + "/mapping/" + iface, e.Group.Name
}

// Elements returns the entries of shared lists that belong to our entry e.
func (*ZooKeeperApp) Elements(e registry.Entry) []registry.Entry { return elementsOf(e) }

func elementsOf(e registry.Entry) []registry.Entry {
	if revision, ok := ParseMetadataRevision(e.Key); !ok || strings.HasSuffix(revision, keyGo) {
		return nil
	}
	var elements []registry.Entry
	for _, iface := range interfacesOf(e.Value) {
		elements = append(elements, registry.Entry{Group: e.Group, Key: keyMapping + iface, Value: e.Group.Name})
	}
	return elements
}

// Entry returns the entry of a node and its mark. It never fails: for a node that cannot
// be decoded it returns an entry without a mark.
func (z *ZooKeeperApp) Entry(g registry.Group, name string, data []byte) (registry.Entry, metadata.Mark) {
	e := registry.Entry{Group: g, Key: name, Value: string(data)}
	if strings.HasPrefix(name, "/") {
		return z.documentEntry(e, name)
	}
	var c curator
	if err := json.Unmarshal(data, &c); err != nil {
		return e, metadata.Mark{}
	}
	mark, err := metadata.ParseMark(c.Payload.Metadata[metadata.MarkKey])
	if err != nil {
		if checkAddress(c.Address, c.Port) == nil {
			e.Key = hostPort(c.Address, c.Port)
		}
		return e, metadata.Mark{}
	}
	return e, mark
}

func (z *ZooKeeperApp) documentEntry(e registry.Entry, path string) (registry.Entry, metadata.Mark) {
	java, golang := z.documentParents(e.Group.Name)
	revision, isJava := strings.CutPrefix(path, java+"/")
	suffix := ""
	if !isJava {
		revision = strings.TrimPrefix(path, golang+"/")
		suffix = keyGo
	}
	e.Key = keyMetadata + revision + suffix
	mark, ours := parseRevision(revision)
	if !ours || e.Value == "" {
		return e, mark
	}
	if mark, ours := metadata.MarkOf(e); ours == nil {
		return e, mark
	}
	return e, metadata.Mark{}
}

var errForeign = errors.New("is not an instance of Dubbo")

// Foreign returns an error for a node of another format, and nil for a node of this one.
// Consumers of either format fail if a parent has nodes of both.
func (*ZooKeeperApp) Foreign(name string, data []byte) error {
	r, err := parseCurator(registry.Entry{Key: name, Value: string(data)})
	if err == nil && r.metadata == nil {
		err = errForeign
	}
	return err
}
