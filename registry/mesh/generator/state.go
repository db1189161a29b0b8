package generator

import (
	"cmp"
	"crypto/sha256"
	"slices"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

// state is what follows from all answers so far.
type state struct {
	keys       kube.Keys
	namespaces []string // none: all
	world      *kube.World
	known      map[id][sha256.Size]byte // as each object was told that is in the world

	mapping metadata.Mapping
	skipped []metadata.PublicationError
	unread  error // why an object of the last answer is not known, or not as it is now
}

func newState(r kube.Rules, namespaces []string) *state {
	return &state{keys: r.Keys, namespaces: namespaces, world: kube.NewWorld(r), known: make(map[id][sha256.Size]byte)}
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
	if s.world.Settle().Keys {
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
