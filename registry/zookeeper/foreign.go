package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// foreignEntries remembers which nodes were in the parents of exclusive layouts when
// they were last looked at, and which of them are of another format.
type foreignEntries struct {
	mu   sync.Mutex
	seen map[registry.Group]map[string]error // by the node's name; nil: it does no harm
}

// observe takes in what a parent holds.
func (a *foreignEntries) observe(layout Layout, group registry.Group, nodes []found) {
	exclusive, ok := layout.(Exclusive)
	if !ok {
		return
	}
	seen := make(map[string]error, len(nodes))
	for _, f := range nodes {
		switch {
		case f.gone, strings.HasPrefix(f.name, "/"):
		case f.denied != nil:
			seen[f.name] = nil // its format is unknown
		default:
			seen[f.name] = exclusive.Foreign(f.name, f.node.data)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen = make(map[registry.Group]map[string]error)
	}
	a.seen[group] = seen
}

func (a *foreignEntries) of(group registry.Group) map[string]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[group]
}

// foreign returns why nothing may be added to the parent. It is listed for
// that, and what is new in it is read: the parent of a group that was not
// there before is written to without a reading.
func (w *writing) foreign(ctx context.Context) (foreign, err error) {
	exclusive, ok := w.layout.(Exclusive)
	if !ok || !slices.ContainsFunc(w.change.Put, func(p registry.Write) bool { return p.Old == nil }) {
		return nil, nil
	}
	names, err := w.target.client.children(ctx, w.parent)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.parent, err)
	}
	seen := w.target.foreign.of(w.change.Group)
	var fresh []found
	for _, name := range names {
		if reason, known := seen[name]; reason != nil {
			return errForeign(name, reason), nil
		} else if !known {
			fresh = append(fresh, found{name: name})
		}
	}
	if err := w.target.load(ctx, w.layout, w.parent, fresh); err != nil {
		return nil, err
	}
	for _, f := range fresh {
		if f.unread() {
			continue
		}
		if reason := exclusive.Foreign(f.name, f.node.data); reason != nil {
			return errForeign(f.name, reason), nil
		}
	}
	return nil, nil
}

func errForeign(name string, reason error) error {
	return fmt.Errorf("%w: the parent znode holds %.80q, which %w: give one of the two formats another root or service name", registry.ErrRefused, name, reason)
}
