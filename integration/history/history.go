// Package history records what happens between real servers: what a source
// truly has, what is written, and what each subscriber is sent. The checker of
// the guarantees judges it, the same that judges simulations.
package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/internal/guarantees"
)

// owner is who the bridge is in a history; others is everybody else.
const (
	owner  = "the bridge"
	others = "another"
	there  = "there" // the value of every address
)

// A Recorder records the history of services since they all agreed last.
type Recorder struct {
	began    time.Time
	judged   time.Time // what was before has been judged
	allowed  []*allowance
	services map[string]*service
	writes   []writes

	mu     sync.Mutex
	events []guarantees.Event // what the test did to the source
}

// A service is what is known of one service.
type service struct {
	has           []string // what the source truly has
	subscribers   map[string]harness.Subscriber
	notifications map[string]map[string]string // what each was sent last, before the events that are not judged yet
	logged        bool                         // what is written is read from a log
	known         []string                     // what it had when everything was judged last
	judged        bool                         // it has been
	writer        string                       // who wrote last
	term          int64                        // in which term
}

// An allowance is a time in which servers remove what no bridge can keep.
type allowance struct {
	from, to   time.Time
	guarantees []guarantees.Guarantee // not required in this time
	except     []string               // services for which they are required nevertheless
}

// New returns a recorder of nothing.
func New() *Recorder {
	now := time.Now().Round(0)
	return &Recorder{began: now, judged: now, services: make(map[string]*service)}
}

func (r *Recorder) service(name string) *service {
	s := r.services[name]
	if s == nil {
		s = &service{subscribers: make(map[string]harness.Subscriber), notifications: make(map[string]map[string]string)}
		r.services[name] = s
	}
	return s
}

// Subscribe reports a subscriber of a service. Where there are several the
// first by name shows what the service's target holds.
func (r *Recorder) Subscribe(name, who string, s harness.Subscriber) {
	r.service(name).subscribers[who] = s
}

// Has reports what the source of a service truly has from now on. It has to be
// called before that can be seen.
func (r *Recorder) Has(name string, addresses ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.service(name).has = slices.Sorted(slices.Values(addresses))
	r.events = append(r.events, guarantees.Event{At: time.Since(r.began), Kind: guarantees.Desired, Group: name, List: list(addresses)})
}

// Truth returns what the source of each service truly has.
func (r *Recorder) Truth() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	truth := make(map[string][]string)
	for name, s := range r.services {
		truth[name] = s.has
	}
	return truth
}

// Shown returns an error where a subscriber of a service does not see what it
// has.
func (r *Recorder) Shown(name string) error {
	r.mu.Lock()
	s := r.services[name]
	want := s.has
	r.mu.Unlock()
	for _, who := range slices.Sorted(maps.Keys(s.subscribers)) {
		if err := harness.Same(s.subscribers[who].Last(), want); err != nil {
			return fmt.Errorf("%s: %w", who, err)
		}
	}
	return nil
}

// Notifications returns the lists that the subscribers of a service were sent since
// all agreed last, and the last one before.
func (r *Recorder) Notifications(name string) []harness.Seen {
	return r.services[name].first().Since(time.Time{})
}

// Allow says that from now until the returned function is called no bridge can
// keep some guarantees, for a reason that lies in the servers and that the
// caller has to give. Some services may be excepted.
func (r *Recorder) Allow(which []guarantees.Guarantee, except ...string) (end func()) {
	now := time.Now()
	a := &allowance{from: now, to: now.Add(24 * time.Hour), guarantees: which, except: except}
	r.allowed = append(r.allowed, a)
	return func() { a.to = time.Now() }
}

func (r *Recorder) permits(v guarantees.Violation, e guarantees.Event) bool {
	at := r.began.Add(e.At)
	return slices.ContainsFunc(r.allowed, func(a *allowance) bool {
		return slices.Contains(a.guarantees, v.Guarantee) && at.After(a.from) && at.Before(a.to) && !slices.Contains(a.except, e.Group)
	})
}

// Judge checks the history since the last call, and that all services now are
// what they have to be. It prints the shortest history that breaks a
// guarantee, and begins a new one. All services have to be Shown.
func (r *Recorder) Judge(t testing.TB) {
	t.Helper()
	until := time.Now().Round(0)
	broken := 0
	for name, history := range r.histories(t, until) {
		r.services[name].wrote(history)
		for _, v := range guarantees.Check(owner, history) {
			if r.permits(v, history[v.Index]) {
				continue
			}
			if broken++; broken > 3 {
				continue // one defect shows in many reports
			}
			var text strings.Builder
			for _, e := range guarantees.Shortest(owner, history, v) {
				text.WriteString("\n  " + e.String())
			}
			t.Errorf("%s does not hold for %s: %s\nof %d events these show it:%s", v.Guarantee, name, v.Text, len(history), text.String())
		}
	}
	if broken > 3 {
		t.Errorf("%d more", broken-3)
	}
	r.anew(until)
}

// histories returns the history of each service.
func (r *Recorder) histories(t testing.TB, until time.Time) map[string][]guarantees.Event {
	t.Helper()
	r.mu.Lock()
	done := r.events
	r.events = nil
	r.mu.Unlock()
	for _, w := range r.writes {
		done = append(done, w.next(t, r.began)...)
	}
	all := make(map[string][]guarantees.Event)
	for _, e := range done {
		if r.services[e.Group] != nil {
			all[e.Group] = append(all[e.Group], e)
		}
	}
	for name, s := range r.services {
		first := r.judged.Sub(r.began)
		events := slices.Concat(all[name], s.lists(name, r.began, r.judged, until))
		slices.SortStableFunc(events, func(a, b guarantees.Event) int { return cmp.Compare(a.At, b.At) })
		events = append(s.before(name, first), events...)
		all[name] = append(events, guarantees.Event{At: until.Sub(r.began), Kind: guarantees.Final, Group: name, List: list(s.first().Last())})
	}
	return all
}

func (s *service) first() harness.Subscriber {
	return s.subscribers[slices.Min(slices.Collect(maps.Keys(s.subscribers)))]
}

// lists are the events of what subscribers were sent. Where no log reports what
// was written, what the first of them sees come and go was.
func (s *service) lists(name string, began, from, until time.Time) []guarantees.Event {
	var events []guarantees.Event
	first := s.first()
	for who, subscriber := range s.subscribers {
		last := s.notifications[who]
		for _, seen := range subscriber.Since(from) {
			if seen.At.After(until) {
				break
			}
			e := guarantees.Event{At: seen.At.Round(0).Sub(began), Kind: guarantees.Notified, Group: name, Who: who, List: list(seen.Addresses)}
			if w := difference(e, last); subscriber == first && !s.logged && len(w.List)+len(w.Gone) > 0 {
				events = append(events, w)
			}
			events, last = append(events, e), e.List
		}
		s.notifications[who] = last
	}
	return events
}

// difference is the write that a list shows after another.
func difference(notified guarantees.Event, last map[string]string) guarantees.Event {
	w := guarantees.Event{At: notified.At, Kind: guarantees.Wrote, Group: notified.Group, List: make(map[string]string)}
	for key := range notified.List {
		if last[key] == "" {
			w.List[key] = there
		}
	}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		if notified.List[key] == "" {
			w.Gone = append(w.Gone, key)
		}
	}
	return w
}

func (s *service) wrote(history []guarantees.Event) {
	for _, e := range history {
		if e.Kind == guarantees.Wrote && e.Term > 0 {
			s.writer, s.term = e.Who, e.Term
		}
	}
}

// before is a history of nothing but what was when everything was judged last.
func (s *service) before(name string, at time.Duration) []guarantees.Event {
	if !s.judged {
		return nil
	}
	e := guarantees.Event{At: at, Group: name, List: list(s.known)}
	desired, wrote := e, e
	desired.Kind, wrote.Kind = guarantees.Desired, guarantees.Wrote
	wrote.Who, wrote.Term = s.writer, s.term
	events := []guarantees.Event{desired, wrote, wrote} // twice: the first has no cause but the beginning
	for who := range s.subscribers {
		seen := desired
		seen.Kind, seen.Who = guarantees.Notified, who
		events = append(events, seen)
	}
	return events
}

// anew begins a new history. It starts with the entries that were just seen.
func (r *Recorder) anew(until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.judged = until
	for _, s := range r.services {
		s.known, s.judged = s.has, true
		for who, subscriber := range s.subscribers {
			s.notifications[who] = list(s.known)
			subscriber.Forget(until)
		}
	}
	r.allowed = slices.DeleteFunc(r.allowed, func(a *allowance) bool { return a.to.Before(until) })
}

func list(addresses []string) map[string]string {
	all := make(map[string]string, len(addresses))
	for _, a := range addresses {
		all[a] = there
	}
	return all
}
