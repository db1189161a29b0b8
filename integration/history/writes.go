package history

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/internal/guarantees"
)

// writes are what took effect in a ZooKeeper, by its log.
type writes struct {
	log     *harness.ZooKeeperLog
	tests   []*harness.Znodes
	parents map[string]string // services by where their entries are

	own      map[int64]bool    // the sessions that tests had
	replicas map[int64]string  // whose the others are, as far as they raised a fence
	whose    map[string]string // the owner of each entry
	fences   map[string]fence
}

// A fence is a znode by which replicas keep each other from writing: it holds
// the term of who may, and each transaction of theirs checks it.
type fence struct {
	term   int64
	holder string
}

// Writes has what is written for services read from the log of a ZooKeeper, by
// the parent znode of each: all that sessions do which are none of the clients given.
func (r *Recorder) Writes(log *harness.ZooKeeperLog, parents map[string]string, tests ...*harness.Znodes) {
	for _, name := range parents {
		r.service(name).logged = true
	}
	r.writes = append(r.writes, writes{
		log: log, tests: tests, parents: parents,
		own: make(map[int64]bool), replicas: make(map[int64]string), whose: make(map[string]string), fences: make(map[string]fence),
	})
}

// next returns the events since the last call.
func (w *writes) next(t testing.TB, began time.Time) []guarantees.Event {
	t.Helper()
	for _, z := range w.tests {
		w.own[z.Session()] = true
	}
	var all []guarantees.Event
	for _, x := range w.log.Next(t) {
		all = append(all, w.events(x, began)...)
	}
	return all
}

// events are what a transaction did to each service.
func (w *writes) events(x harness.ZooKeeperTransaction, began time.Time) []guarantees.Event {
	events := make(map[string]*guarantees.Event)
	for _, one := range x.Writes {
		parent, entry := path.Split(one.Path)
		name, known := w.parents[strings.TrimSuffix(parent, "/")]
		if !known {
			w.raise(x.Session, one)
			continue
		}
		e := events[name]
		if e == nil {
			e = w.event(x, name, began)
			events[name] = e
		}
		w.did(e, one, harness.EntryAddresses([]string{entry})[0])
	}
	var all []guarantees.Event
	for _, name := range slices.Sorted(maps.Keys(events)) {
		e := events[name]
		e.Gone = slices.DeleteFunc(e.Gone, func(key string) bool { return e.List[key] != "" }) // replaced
		if e.Kind == guarantees.Wrote || len(e.Gone) > 0 {
			all = append(all, *e)
		}
	}
	return all
}

func (w *writes) event(x harness.ZooKeeperTransaction, name string, began time.Time) *guarantees.Event {
	// The log has whole milliseconds; what was written then came after what
	// made the source want it.
	at := x.At.Add(time.Millisecond - time.Nanosecond).Sub(began)
	e := &guarantees.Event{At: at, Kind: guarantees.Wrote, Group: name, Who: fmt.Sprintf("session %x", x.Session), List: make(map[string]string), Owner: make(map[string]string)}
	switch {
	case x.Ended:
		e.Who = "the end of " + e.Who
	case w.own[x.Session]:
		e.Kind, e.At = guarantees.Changed, x.At.Sub(began)
	}
	for _, check := range x.Checks {
		if f, is := w.fences[check.Path]; is {
			e.Term, e.Who = f.term, cmp.Or(w.replicas[x.Session], f.holder)
		}
	}
	return e
}

// did records one write of a transaction.
func (w *writes) did(e *guarantees.Event, one harness.ZooKeeperWrite, key string) {
	if whose, is := w.whose[one.Path]; is && e.Kind == guarantees.Wrote {
		e.Owner[key] = whose
	}
	switch {
	case one.Operation == "delete":
		delete(w.whose, one.Path)
		e.Gone = append(e.Gone, key)
	case e.Kind == guarantees.Wrote:
		w.whose[one.Path] = owner
		e.List[key] = there
	case one.Operation == "create":
		w.whose[one.Path] = others
	default:
		e.Gone = append(e.Gone, key) // somebody else edited it
	}
}

// raise records that a fence holds another term.
func (w *writes) raise(session int64, one harness.ZooKeeperWrite) {
	var f fence
	if path.Base(path.Dir(one.Path)) != "fence" || one.Operation != "set" {
		return
	}
	if _, err := fmt.Sscan(one.Data, &f.term, &f.holder); err == nil {
		w.fences[one.Path], w.replicas[session] = f, f.holder
	}
}
