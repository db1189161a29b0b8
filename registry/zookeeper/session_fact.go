package zookeeper

import (
	"sync"
)

// A sessionFact is a fact about the registry that is known for one session. It is looked up
// again in the next session, because the registry may have been restored.
type sessionFact struct {
	mu      sync.Mutex
	session int64
	value   bool
}

// get returns the fact in a session, and whether it is known.
func (f *sessionFact) get(session int64) (value, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known = session != 0 && f.session == session
	return f.value && known, known
}

func (f *sessionFact) set(session int64, value bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session, f.value = session, value
}
