package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// beside returns the paths of our nodes in the other parents of a group. Those
// of others are not even read: there may be many, and nothing of them matters.
func (t *Target) beside(ctx context.Context, layout Layout, group registry.Group, from lists) ([]string, error) {
	wide, ok := layout.(MultiPath)
	if !ok {
		return nil, nil
	}
	var paths []string
	for _, parent := range wide.Beside(group) {
		names, err := from.children(ctx, parent)
		if errors.Is(err, zk.ErrNoNode) {
			t.parents.forget(parent)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", parent, err)
		}
		t.parents.know(parent)
		for _, name := range names {
			if _, mark := layout.Entry(group, parent+"/"+name, nil); mark.Owner == t.owner {
				paths = append(paths, parent+"/"+name)
			}
		}
	}
	return paths, nil
}

// withElements adds the elements that come with entries of ours, as far as they are
// in their lists.
func (t *Target) withElements(ctx context.Context, layout Layout, held []registry.Held, from lists) ([]registry.Held, error) {
	wide, ok := layout.(MultiPath)
	if !ok {
		return held, nil
	}
	seen := make(map[string]bool)
	for _, h := range slices.Clone(held) {
		if h.Owner != t.owner {
			continue
		}
		for _, e := range wide.Elements(h.Entry) {
			if seen[e.Key] {
				continue
			}
			seen[e.Key] = true
			path, element := wide.Element(e)
			list, err := splitElements(ctx, from, path)
			if errors.Is(err, registry.ErrRefused) {
				continue // to add the element is refused, and costs that alone
			}
			if err != nil {
				return nil, err
			}
			if slices.Contains(list.elements, element) {
				held = append(held, registry.Held{Entry: e, Owner: t.owner, Live: true})
			}
		}
	}
	slices.SortFunc(held, func(a, b registry.Held) int { return a.Compare(b.Entry) })
	return held, nil
}

// An elementList is a node with elements of many, separated by commas.
type elementList struct {
	there    bool
	data     string
	elements []string
	version  int32
}

func splitElements(ctx context.Context, from lists, path string) (elementList, error) {
	n, err := from.get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return elementList{}, nil
	}
	if err != nil {
		return elementList{}, fmt.Errorf("%s: %w", path, err)
	}
	list := elementList{there: true, data: string(n.data), version: n.stat.Version}
	for element := range strings.SplitSeq(list.data, ",") {
		list.elements = append(list.elements, strings.TrimSpace(element))
	}
	return list, nil
}

// isElement reports whether an entry stands for an element of a list.
func isElement(layout Layout, e registry.Entry) bool {
	wide, ok := layout.(MultiPath)
	if !ok {
		return false
	}
	path, _ := wide.Element(e)
	return path != ""
}

// addElement returns what adds a element to its list if the list is still as it was
// read; nothing where the element is there.
func (w *writing) addElement(ctx context.Context, e registry.Entry) (unit, error) {
	path, element := w.layout.(MultiPath).Element(e)
	if err := checkName(path[strings.LastIndexByte(path, '/')+1:]); err != nil {
		return unit{}, err
	}
	list, err := splitElements(ctx, w.target.client, path)
	switch {
	case err != nil:
		return unit{}, err
	case slices.Contains(list.elements, element):
		return unit{}, nil
	case !list.there:
		w.elements[path] = true
		return w.unit(e.Key, 0, &zk.CreateRequest{Path: path, Data: []byte(element), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagPersistent}), nil
	}
	text := element
	if strings.Trim(list.data, ", ") != "" {
		text = strings.TrimRight(list.data, ", ") + "," + element
	}
	return w.unit(e.Key, 0, &zk.SetDataRequest{Path: path, Data: []byte(text), Version: list.version}), nil
}
