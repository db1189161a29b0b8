package bridge_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// shares is a target in which other owners wait until our entries are deleted. It is read
// back half a second after a write.
type shares struct{ *fake }

const leaving = " leaving"

func (s shares) Capabilities() registry.Capabilities {
	c := s.fake.Capabilities()
	c.Leave = func(e registry.Entry) registry.Entry {
		e.Value = strings.TrimSuffix(e.Value, leaving) + leaving
		return e
	}
	return c
}

// TestLeave: another owner may wait until our entries are deleted.
func TestLeave(t *testing.T) {
	begin := func(s *story, o memory.Options) *story {
		s.target = newFake(o)
		s.target.verify = 500 * ms
		return s
	}
	// has starts with one endpoint of a, and two of b.
	has := func(s *story, o memory.Options) *story {
		begin(s, o).starts(shares{s.target})
		return s.has(service("a", "10.0.0.1:80"), service("b", "10.0.1.1:80", "10.0.1.2:80")).in(time.Minute)
	}
	of := func(s *story, name string) (values []string) {
		for _, e := range s.target.Entries() {
			if e.Group.Name == name {
				values = append(values, e.Value)
			}
		}
		return values
	}
	const ours, left, other = `{"weight":0}`, `{"weight":0}` + leaving, "x"
	overlap := memory.Options{Overlap: 3 * time.Second}
	stories(t, bridge.Guard{Share: 1}, map[string]func(*story){
		"the last endpoint waits for three seconds": func(s *story) {
			has(s, memory.Options{}).delete("a").in(0).is("a", of(s, "a"), []string{left})
			s.reason("a", bridge.ReasonWaiting, "marked as leaving")
			s.in(2900*ms).is("a", of(s, "a"), []string{left}).in(200*ms).is("a", of(s, "a"), []string(nil)).inSync(true)
		},
		"where replacements overlap it is next to the one before": func(s *story) {
			has(s, overlap).delete("a").in(0).is("a", of(s, "a"), []string{ours, left})
			s.in(2900*ms).is("a", of(s, "a"), []string{ours, left}).in(200*ms).is("a", of(s, "a"), []string(nil))
		},
		"one of several goes at once": func(s *story) {
			has(s, memory.Options{}).put(service("b", "10.0.1.1:80")).in(0).is("b", of(s, "b"), []string{ours})
		},
		"several that go together": func(s *story) {
			has(s, memory.Options{}).delete("b").in(0).is("b", of(s, "b"), []string{left, left}).in(4*time.Second).is("b", of(s, "b"), []string(nil))
		},
		"it goes once the other's stands": func(s *story) {
			has(s, overlap).delete("a").in(300 * ms)
			s.storing(theirs("a", "10.0.0.1:80")).in(300*ms).is("a", of(s, "a"), []string{other})
		},
		"another owner's instead of it is not drift": func(s *story) {
			has(s, memory.Options{}).delete("a").in(300 * ms)
			s.storing(theirs("a", "10.0.0.1:80")).in(5*time.Minute).is("a", of(s, "a"), []string{other})
			s.is("drift", s.count(bridge.ObservedDrift, ""), 0).inSync(true)
		},
		"it is claimed again": func(s *story) {
			has(s, overlap).delete("a").in(time.Second).put(service("a", "10.0.0.1:80")).in(5*time.Second).is("a", of(s, "a"), []string{ours})
			s.delete("a").in(2*time.Second).is("a", of(s, "a"), []string{ours, left})
		},
		"a process that ends meanwhile": func(s *story) {
			has(s, overlap).delete("a").in(time.Second)
			next := s.again()
			next.target = s.target
			next.starts(shares{s.target})
			next.has(service("b", "10.0.1.1:80", "10.0.1.2:80")).in(2*time.Second).is("a", of(s, "a"), []string{ours, left})
			next.in(2*time.Second).is("a", of(s, "a"), []string(nil))
		},
		"a target that refuses the mark": func(s *story) {
			has(s, memory.Options{})
			s.target.write = func(ctx context.Context, c registry.Change) error {
				for _, w := range c.Put {
					if strings.HasSuffix(w.New.Value, leaving) {
						return registry.Refused{w.New.Key: registry.ErrRefused}
					}
				}
				return s.target.Target.Write(ctx, c)
			}
			s.delete("a").in(time.Second).is("a", of(s, "a"), []string(nil))
		},
	})
}
