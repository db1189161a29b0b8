package lease

import (
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// State is what a replica knows of the election of one target.
type State struct {
	bridge.Leadership

	Identity  string   // of this replica
	Members   []string // in order
	Ready     bool     // it did what its role asks for
	Lost      int      // how often the time of its entry ran out
	LastError string   // why the record is out of reach; empty: it is not
}

// State returns what is known now.
func (e *Elector) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := State{
		Leadership: e.leadership(), Identity: e.opts.Identity, Members: slices.Sorted(maps.Keys(e.record.Members)),
		Ready: e.record.ready(e.opts.Identity), Lost: e.lost,
	}
	if e.lastErr != nil {
		s.LastError = e.lastErr.Error()
	}
	return s
}

// Leadership implements bridge.Election.
func (e *Elector) Leadership() bridge.Leadership {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leadership()
}

// leadership is Leadership with the lock held. A leader whose time ran out is
// named no more.
func (e *Elector) leadership() bridge.Leadership {
	l := bridge.Leadership{Role: bridge.RoleStandby, Term: e.record.Term, Leader: e.record.Leader}
	if l.Leader == e.opts.Identity {
		if e.yielded || !e.now().Before(e.until) {
			l.Leader = ""
		} else {
			l.Role, l.Until = bridge.RoleLeader, e.until
		}
	}
	return l
}

// Changed implements bridge.Election.
func (e *Elector) Changed() <-chan struct{} { return e.changed }

// Ready implements bridge.Election.
func (e *Elector) Ready(l bridge.Leadership) {
	e.mu.Lock()
	e.done = l
	e.mu.Unlock()
	wake(e.poke)
}

// config is what a replica said that it is configured to write.
type config struct {
	name, text string
	at         time.Time // when it was last seen in the record
}

// Remembered is how long a replica that is gone from the record counts for
// Differing: it may be back, as one that is restarted again and again.
const Remembered = 10 * time.Minute

// Configure tells the others what this replica is configured to write, by a text
// that is the same for all that are configured alike.
func (e *Elector) Configure(text string) {
	e.mu.Lock()
	e.config = text
	e.mu.Unlock()
	wake(e.poke)
}

// Differing reports whether a replica is configured otherwise than this one, or
// was when it was last seen, no longer than Remembered ago, and which. None is
// named before the record was read. What only the other writes is no orphan.
func (e *Elector) Differing() (name string, differs bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.joined {
		return "", true
	}
	if o := e.other; e.config == "" || o.text == e.config || e.now().Sub(o.at) >= Remembered {
		return "", false
	}
	return e.other.name, true
}
