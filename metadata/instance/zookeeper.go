package instance

import (
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// ZooKeeper is a plain format in ZooKeeper:
//
//	<root>/<service>/<prefix><host>:<port>    JSON
//
// A node is created with all of its data. The value of an entry is the data, and the key
// is host:port of the first port. So a node of another owner with the same address is a
// conflict and not a second endpoint.
type ZooKeeper struct {
	codec
	form NodeForm
}

// maxNode is the limit of the metadata of one instance. A parent with a thousand nodes
// must be readable in seconds.
const maxNode = 8192

// NewZooKeeper returns the codec of a format in ZooKeeper. The error names every invalid
// option.
func NewZooKeeper(form NodeForm, o Options) (*ZooKeeper, error) {
	c, err := newCodec(form.Form, o, maxNode)
	if err != nil {
		return nil, err
	}
	return &ZooKeeper{c, form}, nil
}

// Encode implements metadata.Codec.
func (z *ZooKeeper) Encode(s *registry.Service) ([]registry.Entry, error) {
	return z.encode(s, z.entry)
}

// Decode implements metadata.Codec.
func (z *ZooKeeper) Decode(entries, _ []registry.Entry) ([]*registry.Service, []metadata.DecodeError) {
	return z.decode(entries, func(e registry.Entry) (Instance, error) {
		i, err := z.form.Read(e.Key, []byte(e.Value))
		if err == nil && i.Service != "" && i.Service != e.Group.Name {
			err = fmt.Errorf("belongs to service %.80q, but is under the path of %q", i.Service, e.Group.Name)
		}
		return i, err
	})
}

func (z *ZooKeeper) entry(i Instance) (registry.Entry, error) {
	if z.o.Root == "/" && isReservedNode(i.Service) {
		return registry.Entry{}, fmt.Errorf("name %q is the root of another format; add a rule to names with another service",
			i.Service)
	}
	return registry.Entry{Group: z.group(i.Service), Key: i.Key(), Value: z.form.Write(i)}, nil
}

// isReservedNode reports whether a top-level znode belongs to another format, to
// ZooKeeper or to the bridge.
func isReservedNode(name string) bool {
	switch name {
	case "zookeeper", "dubbo", "services", "microservices", "xds-bridge", "plain":
		return true
	}
	return false
}

func (z *ZooKeeper) group(service string) registry.Group {
	return registry.Group{Kind: z.form.Kind, Namespace: z.o.Root, Name: service, Exclusive: !z.o.Join}
}

// Place implements metadata.Codec.
func (z *ZooKeeper) Place() registry.Place {
	return registry.NewPlace(z.group(""), func(name string) bool {
		_, ok := z.parseName(name)
		return ok && !strings.Contains(name, "/") // another root below this one is another place
	})
}

// Parents returns the pattern of the parents of entries, with * for one part of a path.
func (z *ZooKeeper) Parents() string { return z.rootPrefix() + "*" }

// rootPrefix begins the path of every node below the root.
func (z *ZooKeeper) rootPrefix() string { return strings.TrimSuffix(z.o.Root, "/") + "/" }

// Parent returns the parent of a group. It fails for a name that cannot be a parent, and
// for a group of another format or root.
func (z *ZooKeeper) Parent(g registry.Group) (string, error) {
	if g != z.group(g.Name) {
		return "", fmt.Errorf("group %s is not of %s:%s", g, z.form.Kind, z.o.Root)
	}
	if err := checkPart(g.Name); err != nil {
		return "", err
	}
	return z.rootPrefix() + g.Name, nil
}

// Group returns the group of a parent; false if the parent is not of this format.
func (z *ZooKeeper) Group(parent string) (registry.Group, bool) {
	name, ok := strings.CutPrefix(parent, z.rootPrefix())
	if !ok || checkPart(name) != nil || z.o.Root == "/" && isReservedNode(name) {
		return registry.Group{}, false
	}
	if _, ok := z.parseName(name); !ok {
		return registry.Group{}, false
	}
	return z.group(name), true
}

// HasData reports whether nodes of this format have data, which is always true.
func (*ZooKeeper) HasData() bool { return true }

// Replaces returns how a changed instance replaces the old one.
func (z *ZooKeeper) Replaces() metadata.Replacement { return z.form.Replaces }

// Named implements zookeeper.Named.
func (z *ZooKeeper) Named(node string) bool { return z.form.Named == nil || z.form.Named(node) }

// Foreign implements zookeeper.Exclusive.
func (z *ZooKeeper) Foreign(name string, data []byte) error {
	if !z.Named(name) {
		return fmt.Errorf("is not named host:port, and so not an instance of %s", z.form.Kind)
	}
	if z.form.Foreign == nil {
		return nil
	}
	return z.form.Foreign(data)
}

// Node returns the name and the data of the node that stores an entry.
func (z *ZooKeeper) Node(e registry.Entry) (name string, data []byte, err error) {
	if !strings.HasPrefix(e.Value, "{") {
		return "", nil, fmt.Errorf("%.80q is not a value of %s", e.Value, z.form.Kind)
	}
	return z.form.Prefix + e.Key, []byte(e.Value), nil
}

// Entry returns the entry of a node and its mark. It never fails: for a node that cannot
// be decoded it returns an entry without a mark.
func (z *ZooKeeper) Entry(g registry.Group, name string, data []byte) (registry.Entry, metadata.Mark) {
	e := registry.Entry{Group: g, Key: strings.TrimPrefix(name, z.form.Prefix), Value: string(data)}
	i, err := z.form.Read(name, data)
	if err != nil || len(i.Ports) == 0 {
		return e, metadata.Mark{}
	}
	mark, err := metadata.ParseMark(i.Metadata[metadata.MarkKey])
	if err != nil {
		mark = metadata.Mark{}
	}
	e.Key = i.Key()
	return e, mark
}
