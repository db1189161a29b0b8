package zookeeper

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/xds-bridge/xds-bridge/registry"
)

// foreignNodes holds, for exclusive layouts, which nodes of a parent are of another format,
// as last read.
type foreignNodes struct {
	mu      sync.Mutex
	reasons map[registry.Group]map[string]error // by the name of the node; nil: the node does no harm
}

func (f *foreignNodes) observe(l location, nodes []storedNode) {
	exclusive, ok := l.layout.(Exclusive)
	if !ok {
		return
	}
	reasons := make(map[string]error, len(nodes))
	for _, n := range nodes {
		switch {
		case n.gone, inFurtherParent(n.name):
		case n.denied != nil:
			reasons[n.name] = nil // its format is unknown
		default:
			reasons[n.name] = exclusive.Foreign(n.name, n.node.data)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reasons[l.group] = reasons
}

// reasonsOf returns the nodes of a group's parent, as last read.
func (f *foreignNodes) reasonsOf(group registry.Group) map[string]error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reasons[group]
}

// foreignNode returns why no entry may be added to the parent; nil if entries may be added.
// It lists the parent and reads unknown nodes, because a new group is written without a
// read before.
func (w *writer) foreignNode(ctx context.Context) (foreign, err error) {
	exclusive, ok := w.layout.(Exclusive)
	if !ok || !slices.ContainsFunc(w.change.Put, registry.Write.Adds) {
		return nil, nil
	}
	names, err := w.target.children(ctx, w.parent, w.target.client.query)
	if err != nil {
		return nil, err
	}
	reasons := w.target.foreign.reasonsOf(w.group)
	var unknown []storedNode
	for _, name := range names {
		if reason, known := reasons[name]; reason != nil {
			return errForeign(name, reason), nil
		} else if !known {
			unknown = append(unknown, storedNode{name: name})
		}
	}
	if err := w.load(ctx, w.target.client, unknown); err != nil {
		return nil, err
	}
	for _, n := range unknown {
		if n.gone || n.denied != nil {
			continue
		}
		if reason := exclusive.Foreign(n.name, n.node.data); reason != nil {
			return errForeign(n.name, reason), nil
		}
	}
	return nil, nil
}

func errForeign(name string, reason error) error {
	return fmt.Errorf("%w: the parent znode holds %.80q, which %w; "+
		"use another root or service name for one of the two formats",
		registry.ErrRefused, name, reason)
}
