package ads

import (
	"maps"
	"sync"
)

// board is what State reads while Run writes.
type board struct {
	mu    sync.Mutex // guards state
	state State
}

func (b *board) set(change func(s *State)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.state)
}

func (b *board) setType(url string, change func(t *TypeState)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.Types == nil {
		b.state.Types = map[string]TypeState{}
	}
	t := b.state.Types[url]
	change(&t)
	b.state.Types[url] = t
}

func (b *board) get() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state
	s.Types = maps.Clone(s.Types)
	return s
}
