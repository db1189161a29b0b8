package bridge_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestABridgeThatMayNotBeginYet(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"it writes and deletes nothing, another into the same target does, and then it catches up": func(t *testing.T) {
			s := newStory(t).bridge("a", speed).bridge("b", speed).holding(mine("old", "10.0.0.9:80"))
			known := make(chan struct{})
			s.bridges[0].Begin = func(ctx context.Context) error {
				select {
				case <-known:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			s.tables["a"].Replace(slices.Values([]*registry.Service{service("x", "10.0.0.1:80")}))
			s.tables["b"].Replace(slices.Values([]*registry.Service{service("y", "10.0.0.2:80")}))
			s.starts()
			s.in(time.Hour)
			s.holds("old 10.0.0.9:80", "y 10.0.0.2:80")
			close(known)
			s.in(time.Minute)
			s.holds("x 10.0.0.1:80", "y 10.0.0.2:80")
		},
		"a plan waits for it": func(t *testing.T) {
			s := newStory(t).bridge("a", speed)
			s.make()
			s.bridges[0].Begin = func(context.Context) error { time.Sleep(time.Minute); return nil }
			s.tables["a"].Replace(slices.Values([]*registry.Service{service("x", "10.0.0.1:80")}))
			loop, err := bridge.New(s.target, s.bridges, s.opts)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			planned, _, err := loop.Plan(t.Context())
			if err != nil || len(planned) != 1 || time.Since(began) != time.Minute {
				t.Errorf("%+v, %v after %s", planned, err, time.Since(began))
			}
		},
	})
}
