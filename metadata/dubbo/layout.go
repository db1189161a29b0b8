package dubbo

import (
	"errors"
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Kind returns the format's name, the Kind of its groups.
func (*ZooKeeper) Kind() string { return Kind }

// Parents returns the pattern of the parents that hold entries, with * for one
// part of a path.
func (z *ZooKeeper) Parents() string { return z.o.Root + "/*/providers" }

// Parent returns the parent of a group. The error reports a name that cannot
// be a parent, or a group of another format or root.
func (z *ZooKeeper) Parent(g registry.Group) (string, error) {
	if g != z.group(g.Name) {
		return "", fmt.Errorf("group %s is not of %s:%s", g, Kind, z.o.Root)
	}
	if g.Name == "" || g.Name == "." || g.Name == ".." {
		return "", fmt.Errorf("interface %q cannot be a znode", g.Name)
	}
	return z.o.Root + "/" + escapeNode(g.Name) + "/providers", nil
}

// Group returns the group of a parent, false where the parent is none of this
// format's.
func (z *ZooKeeper) Group(parent string) (registry.Group, bool) {
	rest, ok := strings.CutPrefix(parent, z.o.Root+"/")
	if !ok {
		return registry.Group{}, false
	}
	name, ok := strings.CutSuffix(rest, "/providers")
	if !ok || name == "" || strings.Contains(name, "/") {
		return registry.Group{}, false
	}
	iface, err := unescapeNode(name)
	if err != nil {
		return registry.Group{}, false // no parent of ours is named so, and no consumer looks there
	}
	return z.group(iface), true
}

// HasData reports whether nodes of this format carry data: they do not, so
// that listing a parent reads all of it.
func (*ZooKeeper) HasData() bool { return false }

// Replaces says that a changed provider is another node. By the name alone
// consumers know it, and dubbo-go has no provider between the end of one node
// and the beginning of the other.
func (*ZooKeeper) Replaces() metadata.Replacement { return metadata.Overlapping }

var errValue = errors.New("is no value of this format")

// Node returns the name and the data of the node that stores an entry.
func (*ZooKeeper) Node(e registry.Entry) (name string, data []byte, err error) {
	if e.Value == "" || strings.Contains(e.Value, "/") && !strings.Contains(e.Value, "://") {
		return "", nil, fmt.Errorf("%.80q %w", e.Value, errValue)
	}
	if !strings.Contains(e.Value, "://") {
		return e.Value, nil, nil // kept as it was found, see Entry
	}
	return escapeNode(e.Value), nil, nil
}

// Entry returns what a node stores and whose it is. It never fails: a node
// that cannot be read is an entry that nobody claims, with its name as key and
// value.
func (*ZooKeeper) Entry(g registry.Group, name string, _ []byte) (registry.Entry, metadata.Mark) {
	url, err := unescapeNode(name)
	if err != nil || !strings.Contains(url, "://") {
		return registry.Entry{Group: g, Key: name, Value: name}, metadata.Mark{}
	}
	e := registry.Entry{Group: g, Key: url, Value: url}
	u, err := splitURL(url)
	if err != nil {
		return e, metadata.Mark{}
	}
	if strings.Count(u.query, "&") >= maxParams {
		return e, metadata.Mark{}
	}
	// Of all parameters these three are needed, and a target lists many nodes.
	var iface registry.Interface
	var text string
	for k, v := range paramsOf(u.query) {
		switch unescapeParam(k) {
		case paramVersion:
			iface.Version = unescapeParam(v)
		case paramGroup:
			iface.Group = unescapeParam(v)
		case metadata.MarkKey:
			text = unescapeParam(v)
		}
	}
	e.Key = instanceKey(u.protocol, hostPort(u.host, u.port), iface)
	mark, err := metadata.ParseMark(text)
	if err != nil {
		mark = metadata.Mark{}
	}
	return e, mark
}
