package zookeeper_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	const alive = "/xds-bridge/shop/alive"
	inVirtualTime(t, "the node exists while the bridge runs, and again after a lost session", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server)
		defer client.Close()
		target := target(t, client)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); target.KeepAlive(ctx) }()
		for range 2 {
			time.Sleep(15 * time.Second)
			node, ok := server.Get(alive)
			if !ok || node.Stat.EphemeralOwner != client.State().Session {
				t.Fatalf("node alive = %+v, want one of session %#x", node, client.State().Session)
			}
			server.Expire(client.State().Session)
		}
		cancel()
		<-done
	})
	inVirtualTime(t, "Hidden reports a refusal until it ends", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server)
		defer client.Close()
		must(t, server.Put("/xds-bridge/shop", nil))
		must(t, server.SetACL("/xds-bridge/shop", zkfake.WorldACL(zkfake.PermRead)))
		target, ctx := target(t, client), t.Context()
		go target.KeepAlive(ctx)
		time.Sleep(time.Second)
		if err := target.Hidden(); !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), alive) {
			t.Errorf("Hidden = %v, want a refusal that names the node", err)
		}
		must(t, server.SetACL("/xds-bridge/shop", zkfake.WorldACL(zkfake.PermAll)))
		time.Sleep(15 * time.Second)
		must(t, target.Hidden())
		server.SetFault(func(zkfake.Request) zkfake.Fault { return zkfake.Fault{Cut: zkfake.CutBefore} })
		time.Sleep(time.Minute)
		must(t, target.Hidden()) // that none is reachable is said elsewhere
	})
	inVirtualTime(t, "of two bridges of one owner the other creates the node after the first", func(t *testing.T, server *zkfake.Server) {
		var clients []*zookeeper.Client
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			client := dial(t, server)
			defer client.Close()
			go target(t, client).KeepAlive(ctx)
			synctest.Wait()
			clients = append(clients, client)
		}
		clients[0].Close()
		time.Sleep(15 * time.Second)
		if node, ok := server.Get(alive); !ok || node.Stat.EphemeralOwner != clients[1].State().Session {
			t.Errorf("node alive = %+v, want one of session %#x", node, clients[1].State().Session)
		}
		cancel()
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, "without an error nothing is left behind", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server, func(o *zookeeper.Options) { o.SessionTimeout = time.Hour })
		defer client.Close()
		report, err := target(t, client).Check(t.Context())
		must(t, err)
		want := zookeeper.Report{Server: "server:2181", Version: zkfake.Version, Asked: time.Hour, Granted: 40 * time.Second}
		if report != want {
			t.Errorf("Check = %+v, want %+v", report, want)
		}
		if left := server.Paths("/"); len(left) > 0 {
			t.Errorf("paths after Check = %q, want none", left)
		}
	})
	inVirtualTime(t, "existing nodes stay", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server)
		defer client.Close()
		for _, there := range []string{"/xds-bridge", "/xds-bridge/id", "/xds-bridge/shop"} {
			must(t, server.Put(there, nil))
			before := server.Paths("/")
			report, err := target(t, client).Check(t.Context())
			must(t, err)
			if left := server.Paths("/"); report.Write != nil || !slices.Equal(left, before) {
				t.Errorf("Check = %+v, paths %q, want no error and %q", report, left, before)
			}
		}
	})
	inVirtualTime(t, "a node that may be created and not deleted is not an error", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server)
		defer client.Close()
		must(t, server.SetACL("/", zkfake.WorldACL(zkfake.PermRead|zkfake.PermCreate)))
		report, err := target(t, client).Check(t.Context())
		must(t, err)
		if left := server.Paths("/"); report.Write != nil || strings.Join(left, " ") != "/xds-bridge" {
			t.Errorf("Check = %+v, paths %q, want no error and /xds-bridge", report, left)
		}
	})
	inVirtualTime(t, "denied rights are reported", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server)
		defer client.Close()
		must(t, server.Put(root, nil))
		must(t, server.SetACL(root, zkfake.DigestACL(zkfake.PermAll, "someone", "else")))
		must(t, server.SetACL("/", zkfake.WorldACL(zkfake.PermRead)))
		report, err := target(t, client).Check(t.Context())
		must(t, err)
		if !errors.Is(report.Read, registry.ErrRefused) || !errors.Is(report.Write, registry.ErrRefused) {
			t.Errorf("Check = %+v, want refusals to read and to write", report)
		}
	})
	inVirtualTime(t, "a root in which nothing can be created is reported, though /xds-bridge is ours", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server)
		defer client.Close()
		must(t, server.Put(root, nil))
		must(t, server.SetACL(root, zkfake.WorldACL(zkfake.PermRead)))
		report, err := target(t, client).Check(t.Context())
		must(t, err)
		if report.Read != nil || !errors.Is(report.Write, registry.ErrRefused) || !strings.Contains(report.Write.Error(), "create "+root+"/") {
			t.Errorf("Check = %+v, want a refusal to write into the root", report)
		}
		if left := server.Paths(root); len(left) != 1 {
			t.Errorf("paths of the root after Check = %q, want 1", left)
		}
	})
	inVirtualTime(t, "without a server there is no report", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server)
		defer client.Close()
		must(t, server.Close())
		if _, err := target(t, client).Check(t.Context()); err == nil {
			t.Error("Check without a server: got no error, want one")
		}
	})
}

func TestState(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, "every change of the session comes once", func(t *testing.T, server *zkfake.Server) {
		var states []zookeeper.State
		client := dial(t, server, func(o *zookeeper.Options) {
			o.Observe = func(s zookeeper.State) { states = append(states, s) }
		})
		synctest.Wait()
		server.DropConnections()
		time.Sleep(time.Second)
		server.Expire(client.State().Session)
		time.Sleep(5 * time.Second)
		client.Close()
		var connected []bool
		for _, s := range states {
			connected = append(connected, s.Connected)
		}
		last := states[len(states)-2] // the last is the end
		if len(states) < 6 || last.Sessions != 2 || last.Reconnects != 1 || !last.Connected {
			t.Errorf("states = %v, the last %+v, want two sessions and one reconnect", connected, last)
		}
	})
}
