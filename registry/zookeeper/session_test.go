package zookeeper_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// inVirtualTime runs a test in virtual time, with a server in memory.
func inVirtualTime(t *testing.T, name string, test func(*testing.T, *zkfake.Server)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			t.Helper()
			server := zkfake.New(zkfake.Options{})
			defer server.Close() //nolint:errcheck // it has no listener
			test(t, server)
		})
	})
}

func ready(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestConnection(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, "a short cut keeps the session and the nodes", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server)
		defer client.Close()
		target := target(t, client, withSession)
		write(t, target, creation(ours(0, 0, 0)))
		before, changes := client.State(), server.Changes()
		server.DropConnections()
		synctest.Wait()
		held := read(t, target, groupN(0)) // waits for the session
		after := client.State()
		if after.Session != before.Session || after.Reconnects != 1 || after.Sessions != 1 || ready(target.Capabilities().Lost) {
			t.Errorf("State() = %+v, want session %#x after one reconnect", after, before.Session)
		}
		if len(held) != 1 || !held[0].Live || server.Changes() != changes {
			t.Errorf("Read = %+v after %d changes, want one live entry and no change", held, server.Changes()-changes)
		}
	})
	inVirtualTime(t, "a lost session is reported once, and its entries are written again once", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server)
		defer client.Close()
		target := target(t, client, withSession)
		write(t, target, creation(ours(0, 0, 0), ours(0, 1, 0)))
		start := time.Now()
		server.Expire(client.State().Session)
		<-target.Capabilities().Lost
		if held := read(t, target, groupN(0)); len(held) != 0 {
			t.Errorf("Read after the session = %v, want none", held)
		}
		write(t, target, creation(ours(0, 0, 0), ours(0, 1, 0)))
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("new session after %s, want 2 s at most", took)
		}
		if held := read(t, target, groupN(0)); len(held) != 2 || !held[0].Live || ready(target.Capabilities().Lost) {
			t.Errorf("Read = %+v, want 2 live entries, and no further loss", held)
		}
	})
	inVirtualTime(t, "a node that the old session still holds is replaced, as it is ours", func(t *testing.T, server *zkfake.Server) {
		old := dial(t, server)
		defer old.Close()
		write(t, target(t, old, withSession), creation(ours(0, 0, 0)))
		client := dial(t, server)
		defer client.Close()
		next := target(t, client, withSession)
		if err := next.Write(t.Context(), creation(ours(0, 0, 0))); !errors.Is(err, registry.ErrConflict) {
			t.Errorf("Write without a reading = %v, want ErrConflict", err)
		}
		held := read(t, next, groupN(0))
		if len(held) != 1 || held[0].Live {
			t.Fatalf("Read = %+v, want one entry that is not live", held)
		}
		write(t, next, registry.Change{Group: groupN(0), Put: []registry.Write{{New: ours(0, 0, 0), Old: &held[0]}}})
		server.Expire(old.State().Session)
		if held := read(t, next, groupN(0)); len(held) != 1 || !held[0].Live {
			t.Errorf("Read = %+v, want one live entry", held)
		}
	})
	inVirtualTime(t, "a persistent bridge adopts what a session still holds", func(t *testing.T, server *zkfake.Server) {
		old := dial(t, server)
		defer old.Close()
		write(t, target(t, old, withSession), creation(ours(0, 0, 0)))
		client := dial(t, server)
		defer client.Close()
		next := target(t, client)
		held := read(t, next, groupN(0))
		if len(held) != 1 || held[0].Live {
			t.Fatalf("Read = %+v, want one entry that is not live", held)
		}
		write(t, next, registry.Change{Group: groupN(0), Put: []registry.Write{{New: ours(0, 0, 0), Old: &held[0]}}})
		server.Expire(old.State().Session)
		if held := read(t, next, groupN(0)); len(held) != 1 || !held[0].Live {
			t.Errorf("Read = %+v, want one live entry", held)
		}
	})
	inVirtualTime(t, "what changed during a cut is in the first reading after it", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server)
		defer client.Close()
		target := target(t, client)
		write(t, target, creation(ours(0, 0, 0), ours(0, 1, 0)))
		server.DropConnections()
		synctest.Wait()
		path, _ := pathOf(t, layout{}, ours(0, 0, 0))
		server.Delete(path)
		if held := read(t, target, groupN(0)); len(held) != 1 || held[0].Entry != ours(0, 1, 0) {
			t.Errorf("Read = %v, want only %v", held, ours(0, 1, 0))
		}
	})
	for name, tune := range map[string]func(*zookeeper.TargetOptions){
		"persistent": func(*zookeeper.TargetOptions) {}, "session": withSession, "data": withData,
	} {
		inVirtualTime(t, "a create whose answer is lost is found by its owner: "+name, func(t *testing.T, server *zkfake.Server) {
			client := dial(t, server)
			defer client.Close()
			target := target(t, client, tune)
			write(t, target, creation(ours(1, 0, 0))) // the marker of the session is written
			server.SetFault(func(r zkfake.Request) zkfake.Fault {
				if r.Op == zkfake.OpMulti {
					return zkfake.Fault{Cut: zkfake.CutAfter}
				}
				return zkfake.Fault{}
			})
			if err := target.Write(t.Context(), creation(ours(0, 0, 0))); err == nil || errors.Is(err, registry.ErrConflict) || errors.Is(err, registry.ErrRefused) {
				t.Fatalf("Write = %v, want an error whose result is unknown", err)
			}
			server.SetFault(nil)
			changes := server.Changes()
			held := read(t, target, groupN(0))
			if len(held) != 1 || held[0].Entry != ours(0, 0, 0) || !held[0].Live {
				t.Errorf("Read = %+v, want one live entry", held)
			}
			write(t, target, creation(ours(0, 0, 0))) // even without the look: it is ours and done
			if server.Changes() != changes {
				t.Errorf("changes of a repeated Write = %d, want none", server.Changes()-changes)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, "a call waits no longer than its context, and says why", func(t *testing.T, _ *zkfake.Server) {
		refuse := func(context.Context, string, string) (netConn, error) { return nil, errors.New("connection refused") }
		client, err := zookeeper.Dial(zookeeper.Options{Servers: []string{"one", "two:1"}, Dial: refuse})
		must(t, err)
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		_, err = target(t, client).Read(ctx, groupN(0))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") || time.Since(start) != 3*time.Second {
			t.Errorf("Read = %v after %s, want DeadlineExceeded with the cause after 3 s", err, time.Since(start))
		}
	})
	inVirtualTime(t, "a server that is back is called within seconds, however long it was away", func(t *testing.T, server *zkfake.Server) {
		var away atomic.Bool
		client, err := zookeeper.Dial(zookeeper.Options{Servers: []string{"a"}, SessionTimeout: 2 * time.Minute, Dial: func(ctx context.Context, network, address string) (netConn, error) {
			if away.Load() {
				return nil, errors.New("connection refused")
			}
			return server.Dial(ctx, network, address)
		}})
		must(t, err)
		defer client.Close()
		read(t, target(t, client), groupN(0))
		for outage := time.Second; outage < time.Minute; outage *= 2 {
			away.Store(true)
			server.DropConnections()
			time.Sleep(outage)
			away.Store(false)
			start := time.Now()
			read(t, target(t, client), groupN(0))
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("Read took %s after %s, want 2 s at most", took, outage)
			}
			time.Sleep(time.Minute)
		}
	})
	inVirtualTime(t, "a server that never answers is given up after the dial timeout", func(t *testing.T, server *zkfake.Server) {
		tries := 0
		silent := func(ctx context.Context, network, address string) (netConn, error) {
			if tries++; tries == 1 {
				ours, theirs := pipe()
				go discard(theirs)
				return ours, nil
			}
			return server.Dial(ctx, network, address)
		}
		client, err := zookeeper.Dial(zookeeper.Options{Servers: []string{"a"}, Dial: silent, DialTimeout: 3 * time.Second})
		must(t, err)
		defer client.Close()
		start := time.Now()
		read(t, target(t, client), groupN(0))
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("Read took %s, want 5 s at most", took)
		}
	})
	inVirtualTime(t, "an answer that is not ZooKeeper's is an error, without memory for it", func(t *testing.T, _ *zkfake.Server) {
		http := func(context.Context, string, string) (netConn, error) {
			ours, theirs := pipe()
			go func() {
				_, _ = theirs.Read(make([]byte, 100))
				_, _ = theirs.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
				discard(theirs)
			}()
			return ours, nil
		}
		client, err := zookeeper.Dial(zookeeper.Options{Servers: []string{"a"}, Dial: http, Timeout: 2 * time.Second})
		must(t, err)
		defer client.Close()
		_, err = target(t, client).Groups(t.Context())
		if err == nil || !strings.Contains(err.Error(), `it begins with "HTTP"`) {
			t.Error(err)
		}
	})
	inVirtualTime(t, "an answer beyond the limit is an error, not a shorter list", func(t *testing.T, server *zkfake.Server) {
		write(t, target(t, dial(t, server)), creation(manyEntries(0, 0, 300)...))
		client := dial(t, server, func(o *zookeeper.Options) { o.ReceiveLimit = 4096 })
		defer client.Close()
		target := target(t, client)
		read(t, target, groupN(1))
		before := client.State().Reconnects
		held, err := target.Read(t.Context(), groupN(0))
		if !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "exceeds limits.maxReceive of 4096 bytes") {
			t.Errorf("Read = %d entries, %v, want a refusal with the limit", len(held), err)
		}
		read(t, target, groupN(1)) // it fails only its own request
		if n := client.State().Reconnects; n != before {
			t.Errorf("reconnects = %d, want none", n-before)
		}
	})
}

func TestClose_EveryState(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, "connected, with a call in flight", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server)
		target := target(t, client)
		read(t, target, groupN(0))
		server.SetFault(func(r zkfake.Request) zkfake.Fault {
			if r.Op == zkfake.OpGetChildren2 {
				return zkfake.Fault{Delay: time.Minute}
			}
			return zkfake.Fault{}
		})
		done := make(chan error)
		go func() {
			_, err := target.Read(context.WithoutCancel(t.Context()), groupN(0))
			done <- err
		}()
		synctest.Wait()
		client.Close()
		client.Close()
		if err := <-done; err == nil {
			t.Error("Write in flight at Close: got no error, want one")
		}
		if _, err := target.Read(t.Context(), groupN(0)); err == nil {
			t.Error("Read after Close: got no error, want one")
		}
	})
	inVirtualTime(t, "connected: the session ends with it", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server)
		write(t, target(t, client, withSession), creation(ours(0, 0, 0)))
		client.Close()
		if len(server.Sessions()) != 0 || len(server.Children(parentN(0))) != 0 {
			t.Errorf("sessions and nodes after Close = %v, %q, want none", server.Sessions(), server.Children(parentN(0)))
		}
	})
	inVirtualTime(t, "never connected", func(t *testing.T, _ *zkfake.Server) {
		hang := func(ctx context.Context, _, _ string) (netConn, error) { <-ctx.Done(); return nil, ctx.Err() }
		client, err := zookeeper.Dial(zookeeper.Options{Servers: []string{"a"}, Dial: hang})
		must(t, err)
		start := time.Now()
		client.Close()
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("Close took %s, want 3 s at most", took)
		}
	})
}
