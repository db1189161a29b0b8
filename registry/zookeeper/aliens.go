package zookeeper

import (
	"fmt"
	"sync"

	"github.com/xds-bridge/xds-bridge/registry"
)

// aliens remembers in which folders nodes of another format stood when they
// were last read.
type aliens struct {
	mu   sync.Mutex
	seen map[registry.Group]error
}

// see takes in what a folder holds.
func (a *aliens) see(layout Layout, group registry.Group, nodes []found) {
	jealous, ok := layout.(Jealous)
	if !ok {
		return
	}
	var alien error
	for _, f := range nodes {
		if f.gone {
			continue
		}
		if err := jealous.Alien(f.name, f.node.data); err != nil {
			alien = fmt.Errorf("%w: the folder holds %.80q, which %w: one of the two formats needs another root or service name", registry.ErrRefused, f.name, err)
			break
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if alien == nil {
		delete(a.seen, group)
		return
	}
	if a.seen == nil {
		a.seen = make(map[registry.Group]error)
	}
	a.seen[group] = alien
}

// in returns why nothing may be added to a folder.
func (a *aliens) in(group registry.Group) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[group]
}
