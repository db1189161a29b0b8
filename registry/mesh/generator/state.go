package generator

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

// state is what follows from all answers so far.
type state struct {
	keys       kube.Keys
	namespaces []string // none: all
	world      *kube.Model
	known      map[id][sha256.Size]byte // as each object was told that is in the world

	mapping metadata.Mapping
	skipped []metadata.PublicationError
	unread  error // why an object of the last answer is not known, or not as it is now
}

func newState(r kube.Rules, namespaces []string) *state {
	return &state{keys: r.Keys, namespaces: namespaces, world: kube.NewModel(r), known: make(map[id][sha256.Size]byte)}
}

// take takes in a whole answer, and reports whether anything of the keys changed. An
// object that cannot be read stays as it was; one that cannot even be named may be
// any, so that then none goes. An error leaves everything as it was.
func (s *state) take(a answer) (news bool, err error) {
	if len(a[serviceEntry]) == 0 && s.holdsEntries() {
		return false, errEmptied
	}
	seen, unread, nameless := make(map[id]struct{}), error(nil), false
	for _, k := range kinds() {
		for _, wire := range a[k] {
			t, err := parse(k, wire, s.keys)
			if err != nil {
				unread, nameless = cmp.Or(unread, err), true
				continue
			}
			if _, twice := seen[t.id]; twice || !s.reads(t.namespace) {
				continue
			}
			seen[t.id] = struct{}{}
			unread = cmp.Or(unread, s.put(&t))
		}
	}
	if !nameless {
		s.removeBut(seen)
	}
	news = text(s.unread) != text(unread)
	s.unread = unread
	if s.world.Update().Keys {
		s.mapping, s.skipped = s.world.Mapping()
		news = true
	}
	return news, nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// holdsEntries reports whether a ServiceEntry is known.
func (s *state) holdsEntries() bool {
	for i := range s.known {
		if i.kind == serviceEntry {
			return true
		}
	}
	return false
}

func (s *state) reads(namespace string) bool {
	return len(s.namespaces) == 0 || slices.Contains(s.namespaces, namespace)
}

// put takes an object in that differs from what is known of it.
func (s *state) put(t *told) error {
	if s.known[t.id] == t.sum {
		return nil
	}
	object, err := t.object()
	if err != nil {
		return err
	}
	s.known[t.id] = t.sum
	s.world.Put(object)
	return nil
}

// removeBut takes everything out that an answer does not tell of.
func (s *state) removeBut(seen map[id]struct{}) {
	for i := range s.known {
		if _, still := seen[i]; !still {
			delete(s.known, i)
			s.world.Remove(i.named())
		}
	}
}

// maxSkipped is how many keys that cannot be read are listed.
const maxSkipped = 1000

// teller judges readings, and knows what is to be told of them.
type teller struct {
	state    *state
	replica  debug.ReplicaStatus
	complete bool // a reading was
	log      *slog.Logger
}

// take takes a reading that began at a time, and reports whether there are news. It
// returns why the reading does not count.
func (t *teller) take(a answer, began time.Time) (news bool, failure error) {
	news, err := t.state.take(a)
	if err != nil {
		refused := &debug.Error{
			Cause: debug.Truncated, Where: "the api generator at " + t.replica.Replica, Err: err,
			Fix: "see the log of istiod; where the mesh is meant to be empty, restart the bridge",
		}
		return t.fail(refused), refused
	}
	again := cause(t.replica.Err) != ""
	if again {
		t.log.Info("service keys are read again", "replica", t.replica.Replica)
	}
	news = news || again || !t.complete
	t.complete, t.replica = true, debug.ReplicaStatus{Replica: t.replica.Replica, Answered: true, At: began}
	return news, nil
}

// fail notes why a reading does not count, and reports whether that is news.
func (t *teller) fail(err error) (news bool) {
	if news = cause(t.replica.Err) != cause(err); news {
		t.log.Warn("service keys cannot be read, the last known ones stay", "replica", t.replica.Replica, "err", err)
	}
	t.replica.Err = err
	return news
}

// cause is what two errors share that mean the same: texts of the operating system
// differ in port numbers.
func cause(err error) debug.Cause {
	if e, ok := errors.AsType[*debug.Error](err); ok {
		return e.Cause
	}
	return ""
}

// snapshot returns what is known.
func (t *teller) snapshot(now time.Time) debug.Snapshot {
	s := t.state
	return debug.Snapshot{
		Mapping: s.mapping, Complete: t.complete, Err: t.replica.Err, Unread: s.unread, At: now,
		Skipped: s.skipped[:min(len(s.skipped), maxSkipped)], SkippedTotal: len(s.skipped),
		Replicas: []debug.ReplicaStatus{t.replica},
	}
}
