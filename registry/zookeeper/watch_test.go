package zookeeper_test

import (
	"context"
	"math"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

func TestTarget_Changes(t *testing.T) {
	cases := map[string]struct {
		happens func(t *testing.T, s *zkfake.Server, write func(registry.Change))
		want    []registry.Group
	}{
		"our write": {want: []registry.Group{groupN(0)}, happens: func(_ *testing.T, _ *zkfake.Server, write func(registry.Change)) {
			write(creation(ours(0, 2, 0)))
		}},
		"an entry that another deletes": {want: []registry.Group{groupN(0)}, happens: func(t *testing.T, s *zkfake.Server, _ func(registry.Change)) {
			path, _ := pathOf(t, layout{}, ours(0, 1, 0))
			s.Delete(path)
		}},
		"an entry that another adds": {want: []registry.Group{groupN(1)}, happens: func(t *testing.T, s *zkfake.Server, _ func(registry.Change)) {
			path, _ := pathOf(t, layout{}, theirs(1, 3, 0))
			must(t, s.Put(path, nil))
		}},
		"a parent that did not exist": {want: []registry.Group{groupN(2)}, happens: func(t *testing.T, s *zkfake.Server, _ func(registry.Change)) {
			path, _ := pathOf(t, layout{}, theirs(2, 3, 0))
			must(t, s.Put(path, nil))
		}},
		"all of it": {want: []registry.Group{groupN(0), groupN(1)}, happens: func(_ *testing.T, s *zkfake.Server, _ func(registry.Change)) {
			s.Delete(root)
		}},
		"the session": {want: []registry.Group{groupN(0), groupN(1), groupN(2)}, happens: func(_ *testing.T, s *zkfake.Server, _ func(registry.Change)) {
			for _, id := range s.Sessions() {
				s.Expire(id)
			}
		}},
		"the connections": {want: []registry.Group{groupN(0), groupN(1), groupN(2)}, happens: func(_ *testing.T, s *zkfake.Server, _ func(registry.Change)) {
			s.DropConnections()
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t)
				client := dial(t, s)
				defer client.Close()
				target := target(t, client)
				write := func(c registry.Change) { must(t, target.Write(t.Context(), c)) }
				for n := range 3 {
					if n < 2 {
						write(creation(ours(n, 1, 0)))
					}
					_ = watch(t, target, groupN(n))
				}
				if got := target.Changes(); got != nil {
					t.Fatalf("Changes() = %v before a change, want none", got)
				}
				c.happens(t, s, write)
				time.Sleep(time.Minute) // another session replaces the lost one
				if got := target.Changes(); !reflect.DeepEqual(got, c.want) {
					t.Errorf("Changes() = %v, want %v", got, c.want)
				}
				for _, group := range c.want {
					_ = watch(t, target, group)
				}
				if got := target.Changes(); got != nil {
					t.Errorf("Changes() = %v again, want none", got)
				}
			})
		})
	}
}

// at is a connection to an address.
type at struct {
	net.Conn
	addr netip.AddrPort
}

func (a at) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(a.addr) }

// TestTarget_WatchesWrittenServer has a name that each look-up
// resolves to another address.
func TestTarget_WatchesWrittenServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		var dialed []string
		lookUp := byte(0)
		client, err := zookeeper.Dial(zookeeper.Options{
			Servers: []string{"zk.example"}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				dialed = append(dialed, address)
				conn, err := s.Dial(ctx, network, address)
				lookUp++
				return at{conn, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, lookUp}), 2181)}, err
			},
		})
		must(t, err)
		defer client.Close()
		_ = watch(t, target(t, client), groupN(0))
		if want := []string{"zk.example:2181", "10.0.0.1:2181"}; !slices.Equal(dialed, want) {
			t.Errorf("dialed %v, want %v", dialed, want)
		}
	})
}

// TestTarget_WatchesAgain has the connections for watches fail for a while after all were
// lost, as at a server that is starting.
func TestTarget_WatchesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		var dials, refused atomic.Int32
		refused.Store(math.MaxInt32 / 2)
		client, err := zookeeper.Dial(zookeeper.Options{
			Servers: []string{"zk:2181"}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := s.Dial(ctx, network, address)
				if n := dials.Add(1) - refused.Load(); err == nil && n >= 0 && n < 4 {
					_ = conn.Close() // accepted, and reset
				}
				return conn, err
			},
		})
		must(t, err)
		defer client.Close()
		target, groups := target(t, client), []registry.Group{groupN(0), groupN(1)}
		for n, g := range groups {
			must(t, target.Write(t.Context(), creation(ours(n, 1, 0))))
			_ = watch(t, target, g)
		}
		if err := client.Unwatched(); err != nil {
			t.Fatalf("Unwatched() = %v while it is connected, want nil", err)
		}

		refused.Store(dials.Load() + 2) // the next one is that of the client
		s.DropConnections()
		time.Sleep(5 * time.Second)
		if got := target.Changes(); !slices.Equal(got, groups) {
			t.Errorf("Changes() after the connections were lost = %v, want %v", got, groups)
		}
		for _, g := range groups {
			_ = watch(t, target, g)
		}
		if client.Unwatched() == nil {
			t.Error("Unwatched() = nil while the connection fails, want an error")
		}
		path, _ := pathOf(t, layout{}, ours(0, 1, 0))
		s.Delete(path)

		time.Sleep(time.Minute)
		if client.Unwatched() == nil {
			t.Error("Unwatched() = nil before the groups are read again, want an error")
		}
		if got := target.Changes(); !slices.Equal(got, groups) {
			t.Errorf("Changes() once it is connected = %v, want %v", got, groups)
		}
		if err := client.Unwatched(); err != nil {
			t.Errorf("Unwatched() = %v once the groups are reported, want nil", err)
		}
		for _, g := range groups {
			_ = watch(t, target, g)
		}
		path, _ = pathOf(t, layout{}, ours(1, 1, 0))
		s.Delete(path)
		synctest.Wait()
		if got := target.Changes(); !slices.Equal(got, groups[1:]) {
			t.Errorf("Changes() = %v, want %v", got, groups[1:])
		}
	})
}

// TestTarget_WatchesUnread has the connection for watches lost while no group is read,
// as of a standby.
func TestTarget_WatchesUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		client := dial(t, s)
		defer client.Close()
		target := target(t, client)
		_ = watch(t, target, groupN(0))
		s.DropConnections()
		time.Sleep(time.Minute)
		_ = target.Changes()
		if err := client.Unwatched(); err != nil {
			t.Errorf("Unwatched() = %v, want nil", err)
		}
	})
}

func watch(t *testing.T, target *zookeeper.Target, g registry.Group) []registry.Stored {
	t.Helper()
	held, err := target.Watch(t.Context(), g)
	must(t, err)
	return held
}
