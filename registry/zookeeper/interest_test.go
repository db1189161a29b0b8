package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

func TestOnlyWhatIsWantedIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		register(t, s, "api.A", "10.0.0.1:20880")
		register(t, s, "api.B", "10.0.0.2:20880")
		wish := registry.NewInterest()
		table := readsWanted(t, s, wish)
		later(time.Second)
		tells(t, table)
		wish.Add("api.A", "api.C")
		later(time.Second)
		if a := wish.Answer("api.A"); !a.Reported || a.Err != nil {
			t.Error("the source does not say that it reported what is wanted")
		}
		tells(t, table, "api.A=10.0.0.1:20880")
		register(t, s, "api.A", "10.0.0.3:20880")
		register(t, s, "api.C", "10.0.0.4:20880") // its parent comes later than the wish
		later(time.Second)
		tells(t, table, "api.A=10.0.0.1:20880,10.0.0.3:20880", "api.C=10.0.0.4:20880")
		wish.Drop("api.A")
		later(time.Second)
		tells(t, table, "api.C=10.0.0.4:20880")
	})
}

func TestARootThatVanishesTakesNothingAlong(t *testing.T) {
	for name, before := range map[string]bool{"it was there at first": true, "it came later": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t)
				if before {
					register(t, s, "api.A", "10.0.0.1:20880")
				}
				wish := registry.NewInterest()
				wish.Add("api.A")
				table := readsWanted(t, s, wish)
				later(time.Second)
				register(t, s, "api.A", "10.0.0.1:20880")
				later(time.Second)
				tells(t, table, "api.A=10.0.0.1:20880")
				s.Delete("/dubbo")
				later(time.Minute)
				tells(t, table, "api.A=10.0.0.1:20880")
				if err := knowledge(table).Of("dubbo-interface:/dubbo/providers:api.A::"); !errors.Is(err, zookeeper.ErrRootGone) {
					t.Errorf("unknown for %v", err)
				}
			})
		})
	}
}

// TestWhatIsWantedBeforeAnythingExistsIsTold: consumers may start in an ensemble
// in which nobody has registered anything, not even the root.
func TestWhatIsWantedBeforeAnythingExistsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		wish := registry.NewInterest()
		wish.Add("api.A")
		table := readsWanted(t, s, wish)
		later(time.Second)
		if a := wish.Answer("api.A"); !a.Reported || a.Err != nil {
			t.Error("the source does not say that there is nothing")
		}
		tells(t, table)
		register(t, s, "api.A", "10.0.0.1:20880")
		later(time.Second)
		tells(t, table, "api.A=10.0.0.1:20880")
	})
}

func TestAWishCostsWhatItIsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		const n = 100
		for i := range n {
			register(t, s, fmt.Sprintf("api.S%d", i), "10.0.0.1:20880")
		}
		wish := registry.NewInterest()
		table := readsWanted(t, s, wish)
		later(time.Second)
		before := requests(s)
		for i := range n {
			name := fmt.Sprintf("api.S%d", i)
			wish.Add(name)
			later(100 * time.Millisecond)
			if a := wish.Answer(name); !a.Reported || a.Err != nil {
				t.Fatalf("wish %d was not told", i)
			}
		}
		if got := requests(s) - before; got > 3*n {
			t.Errorf("%d services subscribed one by one cost %d requests", n, got)
		}
		if got := len(published(table)); got != n {
			t.Errorf("%d services, want %d", got, n)
		}
	})
}

// requests returns how many requests of a source a server took.
func requests(s *zkfake.Server) int {
	n := 0
	for _, op := range []zkfake.Op{zkfake.OpGetChildren, zkfake.OpGetChildren2, zkfake.OpExists, zkfake.OpGetData} {
		n += s.Count(op)
	}
	return n
}

// readsWanted runs a Dubbo source of what is wanted until the test ends.
func readsWanted(t *testing.T, s *zkfake.Server, wish *registry.Interest) *registry.Table {
	t.Helper()
	codec, err := dubbo.NewZooKeeper(dubbo.Options{})
	must(t, err)
	conn := zookeeper.Options{Servers: []string{"server:2181"}, Dial: s.Dial, SessionTimeout: 10 * time.Second}
	source, err := zookeeper.NewSource(conn, zookeeper.SourceOptions{Formats: []zookeeper.Format{codec}, Interest: wish})
	must(t, err)
	table := registry.NewTable()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx, table) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return table
}

func TestUnregisteredTargetLeavesItsEntriesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		must(t, s.PutEphemeral("/xds-bridge/"+owner+"/alive", []byte("of a bridge"), 4711))
		before := s.Paths("/xds-bridge")
		c := dial(t, s)
		guest := target(t, c, withSession, func(o *zookeeper.TargetOptions) { o.Unregistered = true })
		write(t, guest, creating(ours(1, 1, 1)))
		if left := s.Paths("/xds-bridge"); !slices.Equal(left, before) {
			t.Errorf("left behind: %v", left)
		}
		if held := read(t, guest, groupN(1)); len(held) != 1 || !held[0].Live {
			t.Errorf("%+v", held)
		}
		c.Close()
		later(time.Second)
		if left := s.Children(folderN(1)); len(left) > 0 {
			t.Errorf("outlives its session: %v", left)
		}
	})
}
