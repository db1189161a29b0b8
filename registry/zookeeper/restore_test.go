package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// retryInterval is the longest wait of a client between two connections,
// with the second that the library waits after it tried all servers.
const retryInterval = 6 * time.Second

// TestRestore_OlderSnapshot shows that a session which every server
// refuses, because it has seen more than they have, is given up for a new one.
func TestRestore_OlderSnapshot(t *testing.T) {
	t.Parallel()
	lifetimes := map[string]func(*zookeeper.TargetOptions){
		"persistent": func(*zookeeper.TargetOptions) {}, "session": withSession, "data": withData,
	}
	for name, tune := range lifetimes {
		inVirtualTime(t, "wiped: "+name, func(t *testing.T, server *zkfake.Server) {
			client := dial(t, server)
			defer client.Close()
			tg := target(t, client, tune, func(o *zookeeper.TargetOptions) { o.Bridges = []string{"a bridge"} })
			write(t, tg, creation(ours(0, 0, 0), ours(0, 1, 0)))
			before := server.Paths("/")
			server.Restore(zkfake.Snapshot{})
			awaitSession(t, client, tg, 0)
			write(t, tg, creation(ours(0, 0, 0), ours(0, 1, 0)))
			if after := server.Paths("/"); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("paths = %v, want %v as before", after, before)
			}
		})
		inVirtualTime(t, "restored from a snapshot in which the session is: "+name, func(t *testing.T, server *zkfake.Server) {
			client := dial(t, server)
			defer client.Close()
			tg := target(t, client, tune)
			write(t, tg, creation(ours(0, 0, 0)))
			snap := server.Snapshot()
			write(t, tg, creation(ours(0, 1, 0)))
			server.Restore(snap)
			awaitSession(t, client, tg, 1)
		})
	}
	inVirtualTime(t, "the record of the replicas", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server)
		defer client.Close()
		record, err := zookeeper.NewLeaseStore(client, owner, "zk", zookeeper.Open)
		must(t, err)
		must(t, record.Save(t.Context(), []byte("one"), ""))
		server.Restore(zkfake.Snapshot{})
		later(retryInterval)
		if data, version, err := record.Load(t.Context()); err != nil || data != nil || version != "" {
			t.Errorf("Load = %q, %q, %v, want none", data, version, err)
		}
		must(t, record.Save(t.Context(), []byte("two"), ""))
	})
	inVirtualTime(t, "the registry's own id", func(t *testing.T, server *zkfake.Server) {
		client := dial(t, server)
		defer client.Close()
		_, err := client.ID(t.Context(), "first", zookeeper.Open)
		must(t, err)
		server.Restore(zkfake.Snapshot{})
		synctest.Wait()
		if id, err := client.ID(t.Context(), "second", zookeeper.Open); err != nil || id != "second" {
			t.Errorf("ID = %q, %v, want second", id, err)
		}
	})
}

// awaitSession waits until a client has a new session in which the target sees
// as many entries.
func awaitSession(t *testing.T, client *zookeeper.Client, tg *zookeeper.Target, entries int) {
	t.Helper()
	before, began := client.State().Session, time.Now()
	var held []registry.Stored
	err := errors.New("not asked")
	for err != nil && time.Since(began) < 2*retryInterval {
		held, err = tg.Read(t.Context(), groupN(0))
	}
	if took := time.Since(began); err != nil || len(held) != entries || took > retryInterval {
		t.Errorf("Read = %v, %v after %v, want %d entries within %v", held, err, took, entries, retryInterval)
	}
	if after := client.State().Session; after == before {
		t.Errorf("session = %#x, want another than before", after)
	}
	if tg.Capabilities().Lost != nil && !ready(tg.Capabilities().Lost) {
		t.Error("Lost() is not ready, want it after the session was lost")
	}
	for _, h := range held {
		if tg.Capabilities().Lost != nil && h.Live {
			t.Errorf("Read: %v is live, want it of the lost session", h)
		}
	}
}

// TestConnection_ClosedByServer shows that a session is kept if a
// server closes the connection for another reason: it is not ready, or cannot be
// connected behind a proxy.
func TestConnection_ClosedByServer(t *testing.T) {
	t.Parallel()
	for name, hangsUp := range map[string]func(address string) bool{
		"each time":                           func(string) bool { return true },
		"one that lags: the other has it all": func(address string) bool { return strings.HasPrefix(address, "lags") },
	} {
		inVirtualTime(t, name, func(t *testing.T, server *zkfake.Server) {
			var broken atomic.Bool
			client, err := zookeeper.Dial(zookeeper.Options{
				Servers: []string{"lags", "leads"}, SessionTimeout: 40 * time.Second,
				Dial: func(ctx context.Context, network, address string) (netConn, error) {
					if broken.Load() && hangsUp(address) {
						ours, theirs := pipe()
						go func() {
							_, _ = theirs.Read(make([]byte, 100))
							_ = theirs.Close()
						}()
						return ours, nil
					}
					return server.Dial(ctx, network, address)
				},
			})
			must(t, err)
			defer client.Close()
			tg := target(t, client, withSession)
			write(t, tg, creation(ours(0, 0, 0)))
			before := client.State().Session
			broken.Store(true)
			server.DropConnections()
			time.Sleep(15 * time.Second)
			broken.Store(false)
			if held := read(t, tg, groupN(0)); client.State().Session != before || len(held) != 1 || !held[0].Live || ready(tg.Capabilities().Lost) {
				t.Errorf("Read = %v in %+v, want one live entry in session %#x", held, client.State(), before)
			}
		})
	}
}
