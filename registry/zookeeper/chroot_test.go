package zookeeper_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// TestChroot shows that all paths of a client are below the chroot that follows its
// last server.
func TestChroot(t *testing.T) {
	t.Parallel()
	below := func(o *zookeeper.Options) { o.Servers = []string{"one:2181", "two:2181/a/b"} }
	outside := func(t *testing.T, s *zkfake.Server) {
		t.Helper()
		for _, p := range s.Paths("/") {
			if p != "/a" && p != "/a/b" && !strings.HasPrefix(p, "/a/b/") {
				t.Errorf("path %s, want all paths below /a/b", p)
			}
		}
	}
	for name, tune := range map[string]func(*zookeeper.TargetOptions){"names": func(*zookeeper.TargetOptions) {}, "data": withData} {
		inVirtualTime(t, "a target, "+name, func(t *testing.T, s *zkfake.Server) {
			client := dial(t, s, below)
			defer client.Close()
			tg := target(t, client, tune, func(o *zookeeper.TargetOptions) { o.Bridges = []string{"b"} })
			if id, err := client.ID(t.Context(), "", zookeeper.Open); id != "" || err != nil {
				t.Errorf("ID without an offer = %q, %v, want neither", id, err)
			}
			if all := s.Children("/"); slices.Contains(all, "a") {
				t.Errorf("children of / = %v after ID without an offer, want no chroot", all)
			}
			must(t, tg.Admit(t.Context()))
			write(t, tg, creation(ours(0, 0, 0), ours(0, 1, 0)))
			held := read(t, tg, groupN(0))
			write(t, tg, registry.Change{
				Group: groupN(0), Put: []registry.Write{{New: ours(0, 0, 1), Old: &held[0]}}, Delete: held[1:], Want: []registry.Entry{ours(0, 0, 1)},
			})
			groups, err := tg.Groups(t.Context())
			must(t, err)
			if held = read(t, tg, groupN(0)); len(groups) != 1 || len(held) != 1 || held[0].Entry != ours(0, 0, 1) || !held[0].Live {
				t.Errorf("Groups, Read = %v, %v, want one group with %v", groups, held, ours(0, 0, 1))
			}
			if n := len(s.Children("/a/b" + parentN(0))); n != 1 {
				t.Errorf("nodes of the parent = %d, want 1", n)
			}
			if _, err := client.ID(t.Context(), "an-id", zookeeper.Open); err != nil {
				t.Error(err)
			}
			if r, err := tg.Check(t.Context()); err != nil || r.Write != nil {
				t.Errorf("Check = %+v, %v, want no error", r, err)
			}
			outside(t, s)
		})
	}
	inVirtualTime(t, "a record of replicas", func(t *testing.T, s *zkfake.Server) {
		client := dial(t, s, below)
		defer client.Close()
		record, err := zookeeper.NewLeaseStore(client, owner, "zk", zookeeper.Open)
		must(t, err)
		must(t, record.Save(t.Context(), []byte("one"), ""))
		must(t, s.Put("/a/b/xds-bridge/"+owner+"/leases/zk", []byte("two")))
		data, _, err := record.Load(t.Context())
		must(t, err)
		if string(data) != "two" {
			t.Errorf("Load = %q, want two", data)
		}
		outside(t, s)
	})
	inVirtualTime(t, "a source follows changes", func(t *testing.T, s *zkfake.Server) {
		iface, err := dubbo.NewZooKeeper(dubbo.Options{})
		must(t, err)
		o := zookeeper.Options{Dial: s.Dial, SessionTimeout: 10 * time.Second}
		below(&o)
		source, err := zookeeper.NewSource(o, zookeeper.SourceOptions{Formats: []zookeeper.Format{iface}})
		must(t, err)
		table := registry.NewTable()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- source.Run(ctx, table) }()
		defer func() {
			cancel()
			must(t, <-done)
		}()
		must(t, s.Put("/a/b"+provider("api.A", "10.0.0.1:1"), nil))
		must(t, s.Put(provider("api.Outside", "10.0.0.9:1"), nil))
		later(time.Minute)
		wantReported(t, table, "api.A=10.0.0.1:1")
		must(t, s.Put("/a/b"+provider("api.A", "10.0.0.2:1"), nil))
		later(5 * time.Second)
		wantReported(t, table, "api.A=10.0.0.1:1,10.0.0.2:1")
	})
	for _, servers := range [][]string{{"one:2181/a", "two:2181"}, {"one:2181/a//b"}, {"one:2181/../b"}} {
		if _, err := zookeeper.Dial(zookeeper.Options{Servers: servers}); err == nil {
			t.Errorf("Dial to %q: got no error, want one", servers)
		}
	}
}
