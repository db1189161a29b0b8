package client_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	xzk "github.com/xds-bridge/xds-bridge/plugins/client/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

func ensemble(t *testing.T) *zkfake.Server {
	t.Helper()
	s := zkfake.New(zkfake.Options{})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func process(t *testing.T, s *zkfake.Server, identity string) *client.Client {
	t.Helper()
	return formatted(t, s, identity, "")
}

// formatted returns the client of a process that uses a format.
func formatted(t *testing.T, s *zkfake.Server, identity, format string) *client.Client {
	t.Helper()
	b, err := xzk.New(xzk.Options{
		Conn:     zookeeper.Options{Servers: []string{"server:2181"}, Dial: s.Dial, SessionTimeout: 10 * time.Second},
		Identity: identity, Format: format,
	})
	if err != nil {
		t.Fatal(err)
	}
	return open(t, b, client.Options{})
}

func at(host, app string) client.Instance {
	return client.Instance{Application: app, Host: host, Port: 20000, Protocol: "tri"}
}

func ask(c *client.Client, app string, patience time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := c.Resolve(ctx, client.ByInterface(app, "", ""))
	if err == nil {
		err = s.Err
	}
	return hosts(s), err
}

func TestZooKeeper_DeniedParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ensemble(t)
		provider, consumer := process(t, s, "p"), process(t, s, "")
		_ = provider.Register(at("10.0.0.1", "greeter"))
		_ = provider.Register(at("10.0.0.1", "secret"))
		time.Sleep(2 * time.Second)
		s.SetFault(func(r zkfake.Request) zkfake.Fault {
			for _, p := range r.Paths {
				if strings.Contains(p, "secret") {
					return zkfake.Fault{Code: -102}
				}
			}
			return zkfake.Fault{}
		})
		got, err := ask(consumer, "greeter", time.Second)
		t.Logf("greeter: %s %v", got, err)
		if got, err = ask(consumer, "secret", 5*time.Second); !errors.Is(err, client.ErrDenied) {
			t.Errorf("secret: %s, %v", got, err)
		}
		if got, err = ask(consumer, "greeter", 30*time.Second); got != "[10.0.0.1]" || err != nil {
			t.Errorf("another name was denied, and greeter: %s, %v", got, err)
		}
	})
}

func TestZooKeeper_OutageNewName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ensemble(t)
		provider, consumer := process(t, s, "p"), process(t, s, "")
		_ = provider.Register(at("10.0.0.1", "greeter"))
		time.Sleep(2 * time.Second)
		w := consumer.Watch(client.ByInterface("greeter", "", ""))
		defer w.Stop()
		next(t, w)
		s.SetFault(func(zkfake.Request) zkfake.Fault { return zkfake.Fault{Cut: zkfake.CutBefore} })
		time.Sleep(30 * time.Second)
		got, err := ask(consumer, "greeter", 5*time.Second)
		t.Logf("away: %s %v", got, err)
		_, _ = ask(consumer, "other", 5*time.Second) // a first call to another service
		if got, err = ask(consumer, "greeter", 30*time.Second); got != "[10.0.0.1]" {
			t.Errorf("after a call to another name: %s, %v; want the last known", got, err)
		}
	})
}

func TestZooKeeper_SlowParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ensemble(t)
		provider, consumer := process(t, s, "p"), process(t, s, "")
		_ = provider.Register(at("10.0.0.1", "greeter"))
		time.Sleep(2 * time.Second)
		w := consumer.Watch(client.ByInterface("greeter", "", ""))
		defer w.Stop()
		next(t, w)
		s.SetFault(func(r zkfake.Request) zkfake.Fault {
			for _, p := range r.Paths {
				if strings.Contains(p, "other") {
					return zkfake.Fault{Delay: 3 * time.Second}
				}
			}
			return zkfake.Fault{}
		})
		other := consumer.Watch(client.ByInterface("other", "", ""))
		defer other.Stop()
		began := time.Now()
		got, err := ask(consumer, "greeter", time.Minute)
		if took := time.Since(began); got != "[10.0.0.1]" || took > 100*time.Millisecond {
			t.Errorf("greeter is known and watched: %s, %v after %s", got, err, took)
		}
	})
}

// TestZooKeeper_SharedIdentity: both processes stay published, and both report a conflict.
func TestZooKeeper_SharedIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ensemble(t)
		one, two, consumer := process(t, s, "greeter"), process(t, s, "greeter"), process(t, s, "")
		_ = one.Register(at("10.0.0.1", "greeter"))
		time.Sleep(2 * time.Second)
		_ = two.Register(at("10.0.0.2", "greeter"))
		for range 5 {
			time.Sleep(25 * time.Second)
			if got, err := ask(consumer, "greeter", time.Second); got != "[10.0.0.1 10.0.0.2]" {
				t.Errorf("consumers see %s, %v; errors %v, %v", got, err, one.Status().Problem(), two.Status().Problem())
			}
		}
		for _, c := range []*client.Client{one, two} {
			if err := c.Status().Problem(); !errors.Is(err, client.ErrConflict) || !strings.Contains(err.Error(), "or wait until the earlier session expires") {
				t.Errorf("status: %v", err)
			}
		}
		_ = two.Close()
		time.Sleep(time.Second)
		if got, _ := ask(consumer, "greeter", time.Second); got != "[10.0.0.1]" || one.Status().Problem() != nil {
			t.Errorf("after the other ended: %s, %v", got, one.Status().Problem())
		}
	})
}

// TestZooKeeper_DeletedEntry: a deleted entry is published again, whoever deleted it, even after the
// end of a process with the same address and identity.
func TestZooKeeper_DeletedEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ensemble(t)
		before, consumer := process(t, s, "greeter"), process(t, s, "")
		const parent = "/dubbo/greeter/providers"
		there := func(what string) {
			t.Helper()
			time.Sleep(3 * time.Second)
			if got, err := ask(consumer, "greeter", time.Second); got != "[10.0.0.1]" {
				t.Errorf("%s: %s, %v", what, got, err)
			}
		}
		_ = before.Register(at("10.0.0.1", "greeter"))
		there("registered")
		s.Delete(parent + "/" + s.Children(parent)[0])
		there("deleted")
		held, _ := s.Get(parent + "/" + s.Children(parent)[0])
		after := process(t, s, "greeter")
		_ = after.Register(at("10.0.0.1", "greeter"))
		time.Sleep(10 * time.Minute)
		if now, _ := s.Get(parent + "/" + s.Children(parent)[0]); now.Stat.EphemeralOwner != held.Stat.EphemeralOwner {
			t.Error("the entry of a live session was replaced")
		}
		_ = before.Close()
		there("handed over")
		if err := after.Status().Problem(); err != nil {
			t.Error(err)
		}
	})
}

// TestZooKeeper_RestartWithinSession: a process is killed and restarted at its address before its
// session ends.
func TestZooKeeper_RestartWithinSession(t *testing.T) {
	for _, identity := range []string{"p", "q"} {
		t.Run("before p, now "+identity, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := ensemble(t)
				var dead atomic.Bool
				var mu sync.Mutex
				var conns []net.Conn
				b, err := xzk.New(xzk.Options{Identity: "p", Conn: zookeeper.Options{
					Servers: []string{"server:2181"}, SessionTimeout: 10 * time.Second,
					Dial: func(ctx context.Context, n, a string) (net.Conn, error) {
						if dead.Load() {
							return nil, errors.New("killed")
						}
						c, err := s.Dial(ctx, n, a)
						mu.Lock()
						defer mu.Unlock()
						conns = append(conns, c)
						return c, err
					},
				}})
				if err != nil {
					t.Fatal(err)
				}
				killed := open(t, b, client.Options{})
				_ = killed.Register(at("10.0.0.1", "greeter"))
				consumer := process(t, s, "")
				time.Sleep(2 * time.Second)
				dead.Store(true)
				mu.Lock()
				for _, c := range conns {
					_ = c.Close()
				}
				mu.Unlock()
				again := process(t, s, identity)
				_ = again.Register(at("10.0.0.1", "greeter"))
				gone := 0
				for range 120 {
					time.Sleep(time.Second)
					synctest.Wait()
					if got, _ := ask(consumer, "greeter", time.Second/2); got != "[10.0.0.1]" {
						gone++
					}
				}
				if gone > 3 {
					t.Errorf("the live provider was in no list for %d s of two minutes; status %v", gone, again.Status().Problem())
				}
			})
		})
	}
}

// TestIdentity_BridgeOwner: a process of identity shop does not write as a bridge of owner shop.
func TestIdentity_BridgeOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ensemble(t)
		if err := s.PutEphemeral("/xds-bridge/shop/alive", []byte(`{"host":"bridge-0","process":1,"timeout":10000000000,"writes":"alone"}`), 4711); err != nil {
			t.Fatal(err)
		}
		provider, consumer := process(t, s, "shop"), process(t, s, "")
		_ = provider.Register(at("10.0.0.1", "greeter"))
		time.Sleep(2 * time.Second)
		if got, err := ask(consumer, "greeter", time.Second); got != "[10.0.0.1]" || provider.Status().Problem() != nil {
			t.Errorf("consumers see %s, %v; the provider says %v", got, err, provider.Status().Problem())
		}
		entries := s.Children("/dubbo/greeter/providers")
		if bridge := metadata.MarkKey + "%3D" + metadata.OwnerMark("shop"); len(entries) != 1 || strings.Contains(entries[0], bridge) {
			t.Errorf("%v bears the mark of the bridge, %s", entries, bridge)
		}
	})
}

// TestPublisher_WaitsForAPassword: the password file may appear after the client starts, like a secret
// that is mounted late.
func TestPublisher_WaitsForAPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	synctest.Test(t, func(t *testing.T) {
		s := ensemble(t)
		b, err := xzk.New(xzk.Options{
			Conn:     zookeeper.Options{Servers: []string{"server:2181"}, Dial: s.Dial, User: "app", PasswordFile: file},
			Identity: "p",
		})
		if err != nil {
			t.Fatal(err)
		}
		provider, consumer := open(t, b, client.Options{}), process(t, s, "")
		if err := provider.Register(at("10.0.0.1", "greeter")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := provider.Status().Problem(); !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "passwordFile: open "+file) {
			t.Errorf("without the file: %v", err)
		}
		if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got, err := ask(consumer, "greeter", time.Second); got != "[10.0.0.1]" || provider.Status().Problem() != nil {
			t.Errorf("a minute after it is there: consumers see %s, %v; the provider says %v", got, err, provider.Status().Problem())
		}
	})
}

func TestStatus_ReportsTheLastDialError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
		b, err := xzk.New(xzk.Options{Conn: zookeeper.Options{Servers: []string{"10.1.0.1:2181"}, Dial: refuse}})
		if err != nil {
			t.Fatal(err)
		}
		c := open(t, b, client.Options{})
		_, err = ask(c, "greeter", time.Second)
		const want = "zookeeper 10.1.0.1:2181: connect: connection refused"
		for name, err := range map[string]error{"Resolve": err, "Status": c.Status().Problem()} {
			if !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want %q", name, err, want)
			}
		}
	})
}

// TestZooKeeper_RestoredRoot: a ZooKeeper is restarted without its data, and one provider comes back
// before the other.
func TestZooKeeper_RestoredRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ensemble(t)
		empty := s.Snapshot()
		provider, consumer := process(t, s, "greeter"), process(t, s, "")
		if err := provider.Register(at("10.0.0.1", "greeter")); err != nil {
			t.Fatal(err)
		}
		const parent = "/dubbo/greeter/providers/"
		<-time.NewTimer(time.Second).C
		synctest.Wait()
		other := strings.Replace(s.Children(strings.TrimSuffix(parent, "/"))[0], "10.0.0.1", "10.0.0.2", 1)
		if err := s.Put(parent+other, nil); err != nil {
			t.Fatal(err)
		}
		w := consumer.Watch(client.ByInterface("greeter", "", ""))
		defer w.Stop()
		for got := ""; got != "[10.0.0.1 10.0.0.2]"; {
			got = hosts(next(t, w))
		}
		s.Restore(empty)
		began := time.Now()
		for {
			got := next(t, w)
			if hosts(got) == "[10.0.0.1]" {
				break
			}
			if hosts(got) != "[10.0.0.1 10.0.0.2]" {
				t.Fatalf("%s after %s", hosts(got), time.Since(began))
			}
		}
		if kept := time.Since(began); kept < 15*time.Second || kept > time.Minute {
			t.Errorf("what had not come back was kept for %s, want 15 s", kept)
		}
	})
}

// TestZooKeeper_DeniedRoot: ZooKeeper 3.9 requires a permission to read the root.
func TestZooKeeper_DeniedRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ensemble(t)
		s.SetFault(func(r zkfake.Request) zkfake.Fault {
			for _, p := range r.Paths {
				if strings.HasPrefix(p, "/dubbo") {
					return zkfake.Fault{Code: -102}
				}
			}
			return zkfake.Fault{}
		})
		c := process(t, s, "p")
		time.Sleep(time.Second)
		if err := c.Status().Problem(); !errors.Is(err, client.ErrDenied) || !strings.Contains(err.Error(), "passwordFile") {
			t.Errorf("Status().Problem() = %v before anybody asked, want the denial and what to check", err)
		}
		began := time.Now()
		if _, err := ask(c, "greeter", time.Minute); !errors.Is(err, client.ErrDenied) || time.Since(began) > time.Second {
			t.Errorf("Resolve() = %v after %s, want ErrDenied at once", err, time.Since(began))
		}
		_ = c.Register(at("10.0.0.1", "greeter"))
		time.Sleep(time.Second)
		began = time.Now()
		if err := c.Deregister(context.Background(), at("10.0.0.1", "greeter")); time.Since(began) > time.Second {
			t.Errorf("Deregister() = %v after %s, want it at once", err, time.Since(began))
		}
	})
}

// TestZooKeeper_OneSession: a server accepts 60 connections from one address.
func TestZooKeeper_OneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ensemble(t)
		c := process(t, s, "p")
		one := at("10.0.0.1", "greeter")
		_ = c.Register(one)
		for range 3 {
			if err := c.WaitVisible(t.Context(), one); err != nil {
				t.Fatal(err)
			}
			if _, err := ask(c, "another", time.Minute); err != nil {
				t.Error(err)
			}
			if n := len(s.Sessions()); n != 1 {
				t.Errorf("%d sessions of a process that provides and consumes, want one", n)
			}
			s.DropConnections()
			time.Sleep(time.Minute)
		}
		_ = c.Close()
		if n := len(s.Sessions()); n != 0 {
			t.Errorf("%d sessions after Close", n)
		}
	})
}

// TestZooKeeper_ConnectionLimit: the server closes the connection without an answer.
func TestZooKeeper_ConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := xzk.New(xzk.Options{Identity: "p", Conn: zookeeper.Options{
			Servers: []string{"server:2181"},
			Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					_, _ = theirs.Read(make([]byte, 1024))
					_ = theirs.Close()
				}()
				return ours, nil
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		c := open(t, b, client.Options{})
		time.Sleep(time.Second)
		if err := c.Status().Problem(); err == nil || !strings.Contains(err.Error(), "maxClientCnxns") || !strings.Contains(err.Error(), "server:2181") {
			t.Errorf("Status().Problem() = %v, want the limit and the server", err)
		}
	})
}
