package bridge_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// referring is the service a, whose endpoints refer to a part of its group.
func referring(part string, addrs ...string) *registry.Service {
	s := service("a", addrs...)
	s.Attributes = registry.Attributes{"part": part}
	return s
}

func TestParts(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"what endpoints refer to no longer settles before it goes": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).starts()
			s.has(referring("r1", "10.0.0.1:80")).in(10*time.Minute).holds("a #r1", "a 10.0.0.1:80")
			s.table().Put(referring("r2", "10.0.0.1:80*2"))
			s.in(30*time.Second).holds("a #r1", "a #r2", "a 10.0.0.1:80")
			s.in(time.Minute).holds("a #r2", "a 10.0.0.1:80")
		},
		"a hundred changes of it are no removals to a guard": func(t *testing.T) {
			s := newStory(t).bridge("b", bridge.DefaultGuard()).starts()
			s.has(referring("r0", "10.0.0.1:80", "10.0.0.2:80")).in(10 * time.Minute)
			for i := range 100 {
				s.table().Put(referring(fmt.Sprintf("r%d", i+1), "10.0.0.1:80", "10.0.0.2:80"))
				s.in(2 * time.Second)
			}
			s.table().Put(referring("r100", "10.0.0.2:80"))
			s.in(2*time.Minute).holds("a #r100", "a 10.0.0.2:80")
		},
		"it stays as long as an endpoint that has to wait": func(t *testing.T) {
			s := newStory(t).bridge("b", with(func(g *bridge.Guard) { g.Share, g.LastEndpoint = 1, 5*time.Minute })).starts()
			s.has(referring("r1", "10.0.0.1:80"), service("b", "10.0.0.2:80")).in(10 * time.Minute)
			s.table().Delete("a")
			s.in(4*time.Minute).holds("a #r1", "a 10.0.0.1:80", "b 10.0.0.2:80")
			s.in(3 * time.Minute).holds("b 10.0.0.2:80")
		},
	})
}
