package lease

import (
	"maps"
	"slices"
	"time"
)

// config is what another replica said that it is configured to write.
type config struct {
	word string
	at   time.Time // when it was last seen in the record
}

// Remembered is how long a replica that is gone from the record counts for
// Differing: it may be back, as one that is restarted again and again.
const Remembered = 10 * time.Minute

// Configured tells the others what this replica is configured to write, by a
// word that is the same for all that are configured alike.
func (m *Member) Configured(word string) {
	m.mu.Lock()
	m.config = word
	m.mu.Unlock()
	m.wake()
}

// Differing reports whether a replica is configured otherwise than this one, or
// was when it was last seen, no longer than Remembered ago, and which; none is
// named while it is not known who there is. What only the other writes is then
// no orphan.
func (m *Member) Differing() (name string, differs bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.joined:
		return "", true
	case m.config == "":
		return "", false
	}
	for _, name := range slices.Sorted(maps.Keys(m.configs)) {
		if c := m.configs[name]; c.word != m.config && m.now().Sub(c.at) < Remembered {
			return name, true
		}
	}
	return "", false
}

// compare takes in what others are configured to write. The lock is held.
func (m *Member) compare(t table, now time.Time) {
	for name, e := range t.Members {
		if e.Config != "" && name != m.opts.Identity {
			m.configs[name] = config{e.Config, now}
		}
	}
	maps.DeleteFunc(m.configs, func(_ string, c config) bool { return now.Sub(c.at) >= Remembered })
}
