package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	xnacos "github.com/xds-bridge/xds-bridge/plugins/client/nacos"
	xzk "github.com/xds-bridge/xds-bridge/plugins/client/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// nacosBackend is the backend of a process with a Nacos in memory.
func nacosBackend(t *testing.T) client.Backend {
	t.Helper()
	s, rpc, web := nacosfake.NewServer(), bufconn.Listen(1<<20), bufconn.Listen(1<<20)
	s.Fail(func(r nacosfake.Request) (int, string) {
		if strings.Contains(string(r.Body), "bad name") {
			return 400, "Param 'serviceName' is illegal"
		}
		return 0, ""
	})
	s.Serve(rpc, web)
	t.Cleanup(s.Close)
	b, err := xnacos.New(xnacos.Options{Identity: "greeter-1", Conn: nacos.Options{
		Servers: []string{"http://nacos:8848"},
		Dialer: func(ctx context.Context, _, address string) (net.Conn, error) {
			if strings.HasSuffix(address, ":9848") {
				return rpc.DialContext(ctx)
			}
			return web.DialContext(ctx)
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func zooKeeperBackend(t *testing.T) client.Backend {
	t.Helper()
	b, err := xzk.New(xzk.Options{
		Identity: "greeter-1", Conn: zookeeper.Options{Servers: []string{"server:2181"}, Dial: ensemble(t).Dial},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNew_BackendTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := zooKeeperBackend(t)
		c := open(t, b, client.Options{})
		for range 2 {
			if _, err := client.New(b, client.Options{}); err == nil {
				t.Error("New() = nil for the backend of another client")
			}
			_ = c.Close()
		}
	})
}

// TestQuery_InvalidNames: they are rejected at once, as Register does, and do not affect other names.
func TestQuery_InvalidNames(t *testing.T) {
	for name, c := range map[string]struct {
		backend func(*testing.T) client.Backend
		more    []string
	}{
		"zookeeper": {zooKeeperBackend, []string{"..", "a/b"}},
		"nacos":     {nacosBackend, []string{"bad name", "订单"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := open(t, c.backend(t), client.Options{})
				invalid := []client.Query{{}, client.AnyOf(), client.ByInterface("", "", ""), client.Named("")}
				for _, text := range c.more {
					invalid = append(invalid, client.Named(text))
				}
				for _, q := range invalid {
					w := x.Watch(q)
					defer w.Stop()
					began := time.Now()
					if _, err := w.Next(t.Context()); !errors.Is(err, client.ErrInvalid) || time.Since(began) > 0 {
						t.Errorf("Next(%s) = %v after %s, want ErrInvalid at once", q, err, time.Since(began))
					}
				}
				if _, err := ask(x, "good", 10*time.Second); err != nil {
					t.Errorf("next to them: %v, want an answer", err)
				}
				if s := x.Status(); !s.Read || s.Err != nil {
					t.Errorf("Status() = %t, %v; want nothing of names that nobody can have", s.Read, s.Err)
				}
				mixed := client.AnyOf(client.Named(c.more[0]), client.Named("good"))
				if s, err := x.Resolve(t.Context(), mixed); err != nil || s.Err != nil {
					t.Errorf("one of two that can be: %v, %v", s.Err, err)
				}
			})
		})
	}
}

func TestRegister_InvalidAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, zooKeeperBackend(t), client.Options{})
		for name, i := range map[string]client.Instance{
			"no name":               {Host: "10.0.0.1", Port: 1},
			"no port":               {Application: "a", Host: "10.0.0.1"},
			"no address":            {Application: "a", Host: "localhost", Port: 1},
			"all addresses":         {Application: "a", Host: "::", Port: 1},
			"a zone":                {Application: "a", Host: "fe80::1%eth0", Port: 1},
			"no protocol":           {Application: "a", Host: "10.0.0.1", Port: 1, Protocol: "no such"},
			"no name of a contract": {Interfaces: []client.Interface{{Name: "a b"}}, Host: "10.0.0.1", Port: 1},
		} {
			if err := c.Register(i); !errors.Is(err, client.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
	})
}

func TestOptions_NegativeDurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := client.New(zooKeeperBackend(t), client.Options{StateAge: -1}); err == nil || !strings.Contains(err.Error(), "StateAge") {
			t.Errorf("New() = %v, want an error that names the option", err)
		}
		c := open(t, zooKeeperBackend(t), client.Options{DrainDelay: -1, ForgetAfter: -1, KeepFresh: -1, Grace: -1})
		one := at("10.0.0.1", "greeter")
		_ = c.Register(one)
		if err := c.WaitVisible(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := c.Deregister(t.Context(), one); err != nil || time.Since(began) > 100*time.Millisecond {
			t.Errorf("Deregister() = %v after %s, want no delay", err, time.Since(began))
		}
	})
}

func TestWatch_SecondReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.backend(), client.Options{})
		w := c.Watch(greeterKey)
		defer w.Stop()
		if err := w.Follow(func(client.Snapshot, error) {}); err != nil {
			t.Fatal(err)
		}
		if err := w.Follow(func(client.Snapshot, error) { t.Error("followed twice") }); err == nil {
			t.Error("Follow() = nil for the second")
		}
		if _, err := w.Next(t.Context()); err == nil {
			t.Error("Next() = nil beside Follow")
		}
	})
}

// TestFollow_CloseInTheFunction: the function waits for itself.
func TestFollow_CloseInTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.backend(), client.Options{})
		closed := make(chan struct{})
		if err := c.Watch(greeterKey).Follow(func(_ client.Snapshot, err error) {
			if err == nil {
				_ = c.Close()
				close(closed)
			}
		}); err != nil {
			t.Fatal(err)
		}
		source.all(greeter("10.0.0.1"))
		<-closed
	})
}

func TestStatus_PanicOfAFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.backend(), client.Options{})
		w := c.Watch(greeterKey)
		defer w.Stop()
		first := true
		if err := w.Follow(func(client.Snapshot, error) {
			if first {
				first = false
				panic("a defect")
			}
		}); err != nil {
			t.Fatal(err)
		}
		source.all(greeter("10.0.0.1"))
		if err := c.Status().Problem(); err == nil || !strings.Contains(err.Error(), "a defect") {
			t.Errorf("Status().Problem() = %v, want the panic", err)
		}
		source.all(greeter("10.0.0.2"))
		if err := c.Status().Problem(); err != nil {
			t.Errorf("Status().Problem() = %v after the next answer was handled", err)
		}
	})
}

func TestStatus_StateFileThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for _, file := range []string{filepath.Join(dir, "absent", "state.json"), dir} {
			source := newScripted()
			c := open(t, source.backend(), client.Options{StateFile: file})
			source.all(greeter("10.0.0.1"))
			for range 2 {
				if s := c.Status(); !errors.Is(s.Local, client.ErrStateFile) || !s.Read || s.Err != nil {
					t.Errorf("%s: Status() = %t, %v; want ErrStateFile alone", file, s.Read, s.Local)
				}
				_, _ = c.Resolve(t.Context(), greeterKey)
				time.Sleep(2 * time.Second)
			}
		}
	})
}

// TestStatus_MetadataLeftOut: the instance is published without it.
func TestStatus_MetadataLeftOut(t *testing.T) {
	for name, meta := range map[string]map[string]string{
		"too large":    {"k": strings.Repeat("x", 10_000), "small": "y"},
		"a key of it":  {"version": "1", "small": "y"},
		"nothing else": {"small": "y"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := open(t, zooKeeperBackend(t), client.Options{})
				one := at("10.0.0.1", "greeter")
				one.Metadata = meta
				if err := c.Register(one); err != nil {
					t.Fatal(err)
				}
				if err := c.WaitVisible(t.Context(), one); err != nil {
					t.Fatal(err)
				}
				err := c.Status().Problem()
				if left := len(meta) > 1; left != errors.Is(err, client.ErrInvalid) || !left && err != nil {
					t.Errorf("Status().Problem() = %v, want what is left out, if anything: %t", err, left)
				}
			})
		})
	}
}

// TestLeftOut_Reasons: an address that must not be called is in no answer, and Status has the reason.
func TestLeftOut_Reasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		c := open(t, source.backend(), client.Options{})
		source.do <- func(t *registry.Table) {
			t.Skip("greeter.shop:20000", "127.0.0.1:20000: loopback address")
			t.Skip("another.shop:20000", "of no concern")
			t.Replace(func(y func(*registry.Service) bool) { y(greeter()) })
		}
		if s, err := c.Resolve(t.Context(), greeterKey); err != nil || len(s.Endpoints) != 0 {
			t.Fatal(s, err)
		}
		if got := c.Status().LeftOut; len(got) != 1 || !strings.Contains(fmt.Sprint(got), "loopback") {
			t.Errorf("Status().LeftOut = %v, want the reason of what was asked for", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		own := client.Instance{Interfaces: []client.Interface{{Name: "api.Greeter"}}, Host: "127.0.0.1", Port: 20000}
		if err := c.WaitVisible(ctx, own); err == nil || !strings.Contains(err.Error(), "loopback") {
			t.Errorf("WaitVisible() = %v, want why it does not become visible", err)
		}
	})
}

// TestResolve_AfterClose: a query after Close is not kept up to date.
func TestResolve_AfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, newScripted().backend(), client.Options{})
		_ = c.Close()
		if _, err := c.Resolve(t.Context(), greeterKey); !errors.Is(err, client.ErrClosed) {
			t.Errorf("Resolve() = %v, want ErrClosed", err)
		}
	})
}
