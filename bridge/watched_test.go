package bridge_test

import (
	"context"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A watched target reports changes of groups by others, after a Watch of the group, and is
// never read back: the Kubernetes API.
type watched struct {
	*fake

	groups  list[registry.Group]
	changes list[registry.Group]
	changed chan struct{}
}

func (s *story) watched() *watched { return &watched{fake: s.target, changed: make(chan struct{}, 1)} }

func (w *watched) Capabilities() registry.Capabilities {
	c := w.fake.Capabilities()
	c.Watcher = w
	return c
}

func (w *watched) Watch(ctx context.Context, g registry.Group) ([]registry.Stored, error) {
	w.groups.add(g)
	return w.Read(ctx, g)
}

func (w *watched) Changed() <-chan struct{} { return w.changed }

func (w *watched) Changes() []registry.Group { return w.changes.take() }

// loses deletes the entry of a group, which the target reports if the group is watched.
func (w *watched) loses() {
	w.Drop(group("a"), "10.0.0.1:80")
	for _, g := range w.groups.get() {
		if g == group("a") {
			w.changes.add(g)
			w.changed <- struct{}{}
			return
		}
	}
}

// TestWatched_OurGroups: another writer deletes an entry. It is written again at once, however
// long ago its service appeared.
func TestWatched_OurGroups(t *testing.T) {
	const a = "10.0.0.1:80"
	stories(t, speed, map[string]func(*story){
		"of a service that was there at the start": func(s *story) {
			w := s.watched()
			s.storing(mine("a", a)).starts(w).has(service("a", a)).in(10 * time.Second)
			w.loses()
			s.in(time.Second).stores("a " + a)
		},
		"of a service that came later": func(s *story) {
			w := s.watched()
			s.starts(w).has().in(10 * time.Second)
			s.put(service("a", a)).in(time.Second).stores("a " + a)
			w.loses()
			s.in(time.Second).stores("a " + a)
		},
		"of a service that came to a group of others": func(s *story) {
			w := s.watched()
			s.storing(theirs("a", "10.0.0.2:80")).starts(w).has().in(10 * time.Second)
			s.put(service("a", a)).in(time.Second)
			w.loses()
			s.in(time.Second).stores("a "+a, "a 10.0.0.2:80")
		},
		"of a service of which a part is refused": func(s *story) {
			w := s.watched()
			s.target.write = func(ctx context.Context, c registry.Change) error {
				if refused := "10.0.0.2:80"; len(c.Put) > 1 {
					_ = s.target.Target.Write(ctx, c.Without(func(key string) bool { return key == refused }))
					return registry.Refused{refused: registry.ErrRefused}
				}
				return s.target.Target.Write(ctx, c)
			}
			s.starts(w).has().in(10 * time.Second)
			s.put(service("a", a, "10.0.0.2:80")).in(time.Second).stores("a " + a)
			w.loses()
			s.in(time.Second).stores("a " + a)
		},
	})
}

// TestWatched_ReadOnce: a group is read only after its first write, to begin the watch.
func TestWatched_ReadOnce(t *testing.T) {
	stories(t, speed, map[string]func(*story){"": func(s *story) {
		s.starts(s.watched()).has().in(10 * time.Second)
		for n := range 3 {
			s.put(service("a", []string{"10.0.0.1:80", "10.0.0.2:80*7", "10.0.0.3:80"}[n])).in(10 * time.Second)
		}
		s.is("reads", len(s.made(memory.OpRead)), 1).inSync(true)
	}})
}
