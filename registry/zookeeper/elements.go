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

func (l location) isElement(e registry.Entry) bool {
	multi, ok := l.layout.(MultiPath)
	if !ok {
		return false
	}
	path, _ := multi.Element(e)
	return path != ""
}

// addElements adds the elements that belong to our entries and are in their lists.
func (r *reader) addElements(ctx context.Context, stored []registry.Stored) ([]registry.Stored, error) {
	multi, ok := r.layout.(MultiPath)
	if !ok {
		return stored, nil
	}
	seen := make(map[string]bool)
	for _, s := range slices.Clone(stored) {
		if s.Owner != r.target.owner {
			continue
		}
		for _, e := range multi.Elements(s.Entry) {
			if seen[e.Key] {
				continue
			}
			seen[e.Key] = true
			path, element := multi.Element(e)
			_, elements, err := readElements(ctx, r.query, path)
			if errors.Is(err, registry.ErrRefused) {
				continue // to add the element is refused later, and fails only the element
			}
			if err != nil {
				return nil, err
			}
			if slices.Contains(elements, element) {
				stored = append(stored, registry.Stored{Entry: e, Owner: r.target.owner, Live: true})
			}
		}
	}
	slices.SortFunc(stored, func(a, b registry.Stored) int { return a.Compare(b.Entry) })
	return stored, nil
}

// readElements reads a comma-separated list. The stat of a node that does not exist is nil.
func readElements(ctx context.Context, by queryFunc, path string) (n node, elements []string, err error) {
	n, err = by(ctx, query{path: path, kind: ofData})
	if errors.Is(err, zk.ErrNoNode) {
		return node{}, nil, nil
	}
	if err != nil {
		return node{}, nil, fmt.Errorf("%s: %w", path, err)
	}
	for element := range strings.SplitSeq(string(n.data), ",") {
		elements = append(elements, strings.TrimSpace(element))
	}
	return n, elements, nil
}

// addElement returns the unit that adds an element to its list if the list has not changed
// since it was read. The unit is empty if the list has the element.
func (w *writer) addElement(ctx context.Context, e registry.Entry) (unit, error) {
	path, element := w.layout.(MultiPath).Element(e)
	if err := w.checkName(path); err != nil {
		return unit{}, err
	}
	list, elements, err := readElements(ctx, w.target.client.query, path)
	switch {
	case err != nil:
		return unit{}, err
	case slices.Contains(elements, element):
		return unit{}, nil
	case list.stat == nil:
		w.newLists[path] = true
		return newUnit(e.Key, 0, &zk.CreateRequest{Path: path, Data: []byte(element), Acl: zk.WorldACL(zk.PermAll)}), nil
	}
	text := element
	if others := strings.TrimRight(string(list.data), ", "); others != "" {
		text = others + "," + element
	}
	return newUnit(e.Key, 0, &zk.SetDataRequest{Path: path, Data: []byte(text), Version: list.stat.Version}), nil
}
