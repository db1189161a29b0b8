package bridge_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

func TestPartitions(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"two istiods with different views in turn: nothing goes, and nothing flaps": func(t *testing.T) {
			s := newStory(t).bridge("mesh-to-zk", bridge.DefaultGuard())
			whole := fleet(5, 2)
			s.starts().has(whole...)
			s.in(time.Minute).holdsN(10)
			writes := s.writes()
			for i := range 60 {
				s.has(whole[:5-3*(i%2)]...).in(20 * time.Second).holdsN(10)
			}
			if n := s.writes() - writes; n != 0 {
				t.Errorf("%d writes while the views took turns", n)
			}
		},
	})
}

// TestTwoDeploymentsOfOneService has two bridges of different owners bring
// the same address into one ZooKeeper.
func TestTwoDeploymentsOfOneService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zkfake.New(zkfake.Options{})
		defer server.Close() //nolint:errcheck // it has no listener
		tables := make(map[string]*registry.Table)
		loops := make(map[string]*bridge.Loop)
		for _, owner := range []string{"first", "second"} {
			tables[owner], loops[owner] = registry.NewTable(), nil
			loops[owner] = into(t, server, owner, tables[owner])
			tables[owner].Replace(slices.Values([]*registry.Service{shared()}))
			time.Sleep(time.Minute)
		}
		before := server.Changes()
		time.Sleep(time.Hour)
		if n := server.Changes() - before; n != 0 {
			t.Errorf("%d changes in an hour in which nothing happened", n)
		}
		names := server.Children("/dubbo/api.Shared/providers")
		if len(names) != 1 || !strings.Contains(names[0], metadata.NewMark("first", "b").Owner) {
			t.Errorf("the folder holds %v, want the entry of the first", names)
		}
		if c := loops["second"].Status().Conflicts; len(c) != 1 {
			t.Errorf("conflicts of the second: %+v", c)
		}
		tables["first"].Delete("shared")
		time.Sleep(10 * time.Minute)
		names = server.Children("/dubbo/api.Shared/providers")
		if len(names) != 1 || !strings.Contains(names[0], metadata.NewMark("second", "b").Owner) {
			t.Errorf("after the first took it back: %v, want the entry of the second", names)
		}
	})
}

// TestTwoOwnersThatBeginAtOnce has two bridges of different owners bring the
// same addresses before either can see what the other wrote.
func TestTwoOwnersThatBeginAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zkfake.New(zkfake.Options{})
		defer server.Close() //nolint:errcheck // it has no listener
		const addresses = 30
		one := shared()
		for i := range addresses - 1 {
			one.Endpoints = append(one.Endpoints, registry.Endpoint{Host: fmt.Sprintf("10.0.1.%d", i), Port: 20000})
		}
		loops, tables := make(map[string]*bridge.Loop), make([]*registry.Table, 2)
		for i, owner := range []string{"first", "second"} {
			tables[i] = registry.NewTable()
			tables[i].Replace(slices.Values([]*registry.Service{}))
			loops[owner] = into(t, server, owner, tables[i])
		}
		time.Sleep(time.Second) // by now both know that there is nothing
		for _, table := range tables {
			table.Put(one)
		}
		folder := func() []string { return server.Children("/dubbo/api.Shared/providers") }
		time.Sleep(100 * time.Millisecond) // before either reads back what it wrote
		if n := len(folder()); n != 2*addresses {
			t.Fatalf("%d nodes: they did not begin at once", n)
		}
		seen := make(map[string]bool) // nobody is to be left without any, at no time
		for range 600 {
			time.Sleep(time.Second)
			if n := len(folder()); n < addresses {
				t.Fatalf("%d nodes, fewer than there are addresses", n)
			}
			for _, l := range loops {
				if st := l.Summary(); st.Counts.Holds > 0 {
					seen["holds"] = true
				}
			}
		}
		winner, loser := "first", "second"
		if metadata.NewMark(loser, "b").Owner < metadata.NewMark(winner, "b").Owner {
			winner, loser = loser, winner
		}
		mark := metadata.NewMark(winner, "b").Owner
		names := folder()
		if len(names) != addresses || slices.ContainsFunc(names, func(n string) bool { return !strings.Contains(n, mark) }) || seen["holds"] {
			t.Errorf("%d nodes, holds %v, want the %d of %s: %v", len(names), seen, addresses, winner, names)
		}
		if c := loops[winner].Summary().Counts; c.Conflicts != 0 {
			t.Errorf("the winner has %d conflicts", c.Conflicts)
		}
		if c := loops[loser].Summary().Counts; c.Conflicts != addresses {
			t.Errorf("the other shows %d conflicts, want %d", c.Conflicts, addresses)
		}
	})
}

func shared() *registry.Service {
	return &registry.Service{
		Name: "shared", Interfaces: []registry.Interface{{Name: "api.Shared"}},
		Endpoints: []registry.Endpoint{{Host: "10.0.0.1", Port: 20000}},
	}
}

// into runs the loop of an owner that writes a table to a ZooKeeper.
func into(t *testing.T, server *zkfake.Server, owner string, table *registry.Table) *bridge.Loop {
	t.Helper()
	codec, err := dubbo.NewZooKeeper(dubbo.Options{Mark: metadata.NewMark(owner, "b")})
	if err != nil {
		t.Fatal(err)
	}
	return intoAs(t, server, zookeeper.TargetOptions{Owner: owner, Layouts: []zookeeper.Layout{codec}}, codec, table)
}

// intoAs runs a loop that writes a table to a ZooKeeper by a codec.
func intoAs(t *testing.T, server *zkfake.Server, opts zookeeper.TargetOptions, codec metadata.Codec, table *registry.Table) *bridge.Loop {
	t.Helper()
	client, err := zookeeper.Dial(zookeeper.Options{Servers: []string{"server:2181"}, Dial: server.Dial})
	if err != nil {
		t.Fatal(err)
	}
	target, err := zookeeper.NewTarget(client, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return run(t, target, opts.Owner, bridge.Bridge{Name: "b", Table: table, Project: codec.Encode, Guard: timed()})
}

// run runs the loop of an owner.
func run(t *testing.T, target registry.Target, owner string, b bridge.Bridge) *bridge.Loop {
	t.Helper()
	loop, err := bridge.New(target, []bridge.Bridge{b}, bridge.Options{
		Target: "target", Owner: metadata.Fingerprint(owner, metadata.OwnerLen), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(fmt.Errorf("loop of %s: %w", owner, err))
		}
	})
	return loop
}
