package dubbo

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Kind returns the format's name, the Kind of its groups.
func (*ZooKeeperApp) Kind() string { return KindApplication }

// Parents returns the pattern of the parents that hold instances.
func (z *ZooKeeperApp) Parents() string { return z.o.Services + "/*" }

// Parent returns the parent that holds the instances of a group. The error
// reports a name that cannot be an application, or a group of another format
// or parent.
func (z *ZooKeeperApp) Parent(g registry.Group) (string, error) {
	if g != z.group(g.Name) {
		return "", fmt.Errorf("group %s is not of %s:%s", g, KindApplication, z.o.Services)
	}
	if err := checkApplication(g.Name); err != nil {
		return "", err
	}
	return z.o.Services + "/" + g.Name, nil
}

// Group returns the group of a parent, false where the parent is none of this
// format's.
func (z *ZooKeeperApp) Group(parent string) (registry.Group, bool) {
	app, ok := strings.CutPrefix(parent, z.o.Services+"/")
	return z.group(app), ok && checkApplication(app) == nil
}

// HasData reports whether nodes of this format carry data.
func (*ZooKeeperApp) HasData() bool { return true }

// Replaces says that instances change in place: consumers watch their data.
func (*ZooKeeperApp) Replaces() metadata.Replacement { return metadata.InPlace }

// reportParents are where the documents of an application lie: Java's place
// and dubbo-go's.
func (z *ZooKeeperApp) reportParents(app string) (java, golang string) {
	return z.o.Root + "/metadata/" + app, z.o.Root + "/" + app
}

// Beside returns the other parents that hold nodes of a group. There a node's
// path is its name.
func (z *ZooKeeperApp) Beside(g registry.Group) []string {
	java, golang := z.reportParents(g.Name)
	return []string{java, golang}
}

// Places returns the paths at which what a group needs may lie, the first that
// is there counts.
func (z *ZooKeeperApp) Places(ref metadata.Ref) []string {
	revision, ok := ParseMetadataRevision(ref.Key)
	if !ok || strings.Contains(revision, "/") {
		return nil
	}
	java, golang := z.reportParents(ref.Group.Name)
	return []string{java + "/" + revision, golang + "/" + revision}
}

// Node returns the name and the data of the node that stores an entry; of one
// in another parent the path. A element of a mapping is no node.
func (z *ZooKeeperApp) Node(e registry.Entry) (name string, data []byte, err error) {
	if revision, ok := ParseMetadataRevision(e.Key); ok {
		java, golang := z.reportParents(e.Group.Name)
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

// Element returns the node that holds a list of elements of many, and the one that
// an entry stands for; empty for an entry that is a node.
func (z *ZooKeeperApp) Element(e registry.Entry) (path, element string) {
	iface, ok := strings.CutPrefix(e.Key, keyMapping)
	if !ok {
		return "", ""
	}
	return z.o.Root + "/mapping/" + iface, e.Group.Name
}

// Elements returns the entries that stand for elements which an entry of ours comes
// with.
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

// Entry returns what a node stores and whose it is. It never fails: a node
// that cannot be read is an entry that nobody claims.
func (z *ZooKeeperApp) Entry(g registry.Group, name string, data []byte) (registry.Entry, metadata.Mark) {
	e := registry.Entry{Group: g, Key: name, Value: string(data)}
	if strings.HasPrefix(name, "/") {
		return z.reportEntry(e, name)
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

func (z *ZooKeeperApp) reportEntry(e registry.Entry, path string) (registry.Entry, metadata.Mark) {
	java, golang := z.reportParents(e.Group.Name)
	revision, end := strings.CutPrefix(path, java+"/")
	suffix := ""
	if !end {
		revision = strings.TrimPrefix(path, golang+"/")
		suffix = keyGo
	}
	e.Key = keyMetadata + revision + suffix
	mark, ours := ourRevision(revision)
	if !ours || e.Value == "" {
		return e, mark
	}
	if mark, ours := metadata.MarkOf(e); ours == nil {
		return e, mark
	}
	return e, metadata.Mark{}
}

var errForeign = errors.New("is no instance of Dubbo's")

// Foreign says of which other format a node is, nil where it is of this one:
// readers of either fail where both are.
func (*ZooKeeperApp) Foreign(name string, data []byte) error {
	h, err := hearCurator(registry.Entry{Key: name, Value: string(data)})
	if err == nil && h.metadata == nil {
		err = errForeign
	}
	return err
}
