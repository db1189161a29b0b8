package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

var _ zookeeper.Format = (*dubbo.ZooKeeper)(nil)

func providers(iface string) string { return "/dubbo/" + iface + "/providers" }

func provider(iface, address string) string {
	return providers(iface) + "/" + url.QueryEscape("dubbo://"+address+"/"+iface+"?application=app&interface="+iface+"&side=provider")
}

func register(t *testing.T, s *zkfake.Server, iface string, addresses ...string) {
	t.Helper()
	for _, a := range addresses {
		must(t, s.Put(provider(iface, a), nil))
	}
}

// runSource runs a Dubbo source until the test ends.
func runSource(t *testing.T, s *zkfake.Server) *registry.Table {
	t.Helper()
	return runLogged(t, s, nil)
}

func runLogged(t *testing.T, s *zkfake.Server, log *slog.Logger) *registry.Table {
	t.Helper()
	return runDialed(t, s.Dial, log)
}

func runDialed(t *testing.T, dial func(ctx context.Context, network, address string) (net.Conn, error), log *slog.Logger) *registry.Table {
	t.Helper()
	_, table := startSource(t, dial, log)
	return table
}

func startSource(t *testing.T, dial func(ctx context.Context, network, address string) (net.Conn, error), log *slog.Logger) (*zookeeper.Source, *registry.Table) {
	t.Helper()
	codec, err := dubbo.NewZooKeeper(dubbo.Options{})
	must(t, err)
	conn := zookeeper.Options{Servers: []string{"server:2181"}, Dial: dial, SessionTimeout: 10 * time.Second}
	source, err := zookeeper.NewSource(conn, zookeeper.SourceOptions{Formats: []zookeeper.Format{codec}, Log: log})
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
	return source, table
}

// published returns what a table holds: a line for each interface and its
// addresses.
func published(table *registry.Table) []string {
	rows, _ := table.Snapshot()
	var out []string
	for _, s := range rows {
		var hosts []string
		for _, e := range s.Endpoints {
			hosts = append(hosts, e.Address())
		}
		out = append(out, s.Interfaces[0].Name+"="+strings.Join(hosts, ","))
	}
	slices.Sort(out)
	return out
}

func wantReported(t *testing.T, table *registry.Table, want ...string) {
	t.Helper()
	if got := published(table); !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

func certainty(table *registry.Table) registry.Certainty {
	_, k := table.Snapshot()
	return k
}

// later lets virtual time pass.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestSource(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, s *zkfake.Server){
		"registered services are reported after everything was read": func(t *testing.T, s *zkfake.Server) {
			register(t, s, "api.A", "10.0.0.1:20880", "10.0.0.2:20880")
			register(t, s, "api.B", "10.0.0.3:20880")
			table := runSource(t, s)
			if certainty(table).Synced {
				t.Error("Synced before a reading, want not")
			}
			later(time.Second)
			wantReported(t, table, "api.A=10.0.0.1:20880,10.0.0.2:20880", "api.B=10.0.0.3:20880")
			if k := certainty(table); !k.Synced || k.Stale != nil {
				t.Errorf("certainty = %+v, want synced and not stale", k)
			}
		},
		"an empty registry is known to be empty": func(t *testing.T, s *zkfake.Server) {
			table := runSource(t, s)
			later(time.Second)
			wantReported(t, table)
			if k := certainty(table); !k.Synced {
				t.Errorf("certainty = %+v, want synced", k)
			}
		},
		"endpoints and interfaces come and go": func(t *testing.T, s *zkfake.Server) {
			table := runSource(t, s)
			later(time.Second)
			register(t, s, "api.A", "10.0.0.1:1", "10.0.0.2:1")
			later(time.Second)
			wantReported(t, table, "api.A=10.0.0.1:1,10.0.0.2:1")
			s.Delete(provider("api.A", "10.0.0.1:1"))
			later(time.Second)
			wantReported(t, table, "api.A=10.0.0.2:1")
			register(t, s, "api.B", "10.0.0.3:1")
			later(time.Second)
			wantReported(t, table, "api.A=10.0.0.2:1", "api.B=10.0.0.3:1")
			s.Delete(provider("api.B", "10.0.0.3:1"))
			s.Delete(providers("api.B"))
			s.Delete("/dubbo/api.B")
			later(time.Second)
			wantReported(t, table, "api.A=10.0.0.2:1")
		},
		"a service that lost its last endpoint is known to have none": func(t *testing.T, s *zkfake.Server) {
			register(t, s, "api.A", "10.0.0.1:1")
			table := runSource(t, s)
			later(time.Second)
			s.Delete(provider("api.A", "10.0.0.1:1"))
			later(time.Second)
			wantReported(t, table, "api.A=")
			register(t, s, "api.A", "10.0.0.9:1")
			later(time.Second)
			wantReported(t, table, "api.A=10.0.0.9:1")
		},
		"and is that after a connection was lost too, until its parent is deleted": func(t *testing.T, s *zkfake.Server) {
			register(t, s, "api.A", "10.0.0.1:1")
			register(t, s, "api.B", "10.0.0.2:1")
			table := runSource(t, s)
			later(time.Second)
			before, _ := table.Snapshot()
			s.Delete(provider("api.A", "10.0.0.1:1"))
			later(time.Second)
			s.DropConnections()
			s.Delete(provider("api.B", "10.0.0.2:1"))
			later(10 * time.Second)
			wantReported(t, table, "api.A=", "api.B=")
			rows, _ := table.Snapshot()
			for name, row := range rows {
				if spoke := before[name].Endpoints[0].Protocol; row.Protocol != spoke {
					t.Errorf("protocol of %s = %q, want %q as before", name, row.Protocol, spoke)
				}
			}
			s.DropConnections()
			s.Delete(providers("api.A"))
			s.Delete("/dubbo/api.A")
			later(10 * time.Second)
			wantReported(t, table, "api.B=")
		},
		"an interface whose parent is created later is found": func(t *testing.T, s *zkfake.Server) {
			must(t, s.Put("/dubbo/api.A/consumers", nil))
			table := runSource(t, s)
			later(time.Second)
			wantReported(t, table)
			register(t, s, "api.A", "10.0.0.1:1")
			later(time.Second)
			wantReported(t, table, "api.A=10.0.0.1:1")
		},
		"what changed while disconnected is seen after the reconnect": func(t *testing.T, s *zkfake.Server) {
			register(t, s, "api.A", "10.0.0.1:1", "10.0.0.2:1")
			table := runSource(t, s)
			later(time.Second)
			reader := table.Reader()
			reader.Drain()
			s.DropConnections()
			s.Delete(provider("api.A", "10.0.0.1:1"))
			register(t, s, "api.B", "10.0.0.3:1")
			later(10 * time.Second)
			wantReported(t, table, "api.A=10.0.0.2:1", "api.B=10.0.0.3:1")
			for name, row := range reader.Drain().Rows {
				if strings.Contains(string(name), "api.A") && !row.Found {
					t.Error("Found of api.A = false, want true: its end was missed")
				}
			}
		},
		"without a server everything stays, and is stale": func(t *testing.T, s *zkfake.Server) {
			register(t, s, "api.A", "10.0.0.1:1")
			table := runSource(t, s)
			later(time.Second)
			s.SetFault(func(zkfake.Request) zkfake.Fault { return zkfake.Fault{Cut: zkfake.CutBefore} })
			s.DropConnections()
			later(10 * time.Minute)
			wantReported(t, table, "api.A=10.0.0.1:1")
			if certainty(table).Stale == nil {
				t.Error("Stale = nil after ten minutes without a server, want a reason")
			}
			s.SetFault(nil)
			later(time.Minute)
			if k := certainty(table); k.Stale != nil || k.Epoch < 2 {
				t.Errorf("certainty = %+v, want it not stale after another reading", k)
			}
		},
		"a new session reads and watches everything again": func(t *testing.T, s *zkfake.Server) {
			register(t, s, "api.A", "10.0.0.1:1")
			table := runSource(t, s)
			later(time.Second)
			for _, id := range s.Sessions() {
				s.Expire(id)
			}
			later(30 * time.Second)
			register(t, s, "api.A", "10.0.0.2:1")
			later(time.Second)
			wantReported(t, table, "api.A=10.0.0.1:1,10.0.0.2:1")
		},
		"a subtree that is denied is kept and unknown, others continue": func(t *testing.T, s *zkfake.Server) {
			register(t, s, "api.A", "10.0.0.1:1")
			register(t, s, "api.B", "10.0.0.2:1")
			table := runSource(t, s)
			later(time.Second)
			const noAuth = -102
			s.SetFault(func(r zkfake.Request) zkfake.Fault {
				if len(r.Paths) == 1 && strings.HasPrefix(r.Paths[0], "/dubbo/api.A/") {
					return zkfake.Fault{Code: noAuth}
				}
				return zkfake.Fault{}
			})
			register(t, s, "api.A", "10.0.0.9:1")
			register(t, s, "api.B", "10.0.0.3:1")
			later(time.Second)
			wantReported(t, table, "api.A=10.0.0.1:1", "api.B=10.0.0.2:1,10.0.0.3:1")
			k := certainty(table)
			rows, _ := table.Snapshot()
			for name := range rows {
				if denied := strings.Contains(string(name), "api.A"); (k.Of(name) != nil) != denied {
					t.Errorf("Of(%s) = %v, want it unknown: %v", name, k.Of(name), denied)
				}
			}
			s.SetFault(nil)
			later(20 * time.Second) // long before everything is read again
			wantReported(t, table, "api.A=10.0.0.1:1,10.0.0.9:1", "api.B=10.0.0.2:1,10.0.0.3:1")
		},
		"a root that vanished holds all that it held": func(t *testing.T, s *zkfake.Server) {
			register(t, s, "api.A", "10.0.0.1:1")
			table := runSource(t, s)
			later(time.Second)
			s.SetFault(func(zkfake.Request) zkfake.Fault { return zkfake.Fault{Cut: zkfake.CutBefore} })
			s.DropConnections()
			later(time.Second)
			for _, p := range []string{provider("api.A", "10.0.0.1:1"), providers("api.A"), "/dubbo/api.A", "/dubbo"} {
				s.Delete(p)
			}
			s.SetFault(nil)
			later(time.Hour)
			wantReported(t, table, "api.A=10.0.0.1:1")
			if err := certainty(table).Of("dubbo-interface:/dubbo/providers:api.A::"); !errors.Is(err, zookeeper.ErrRootGone) || !strings.Contains(err.Error(), "/dubbo") {
				t.Errorf("Of(api.A) = %v, want ErrRootGone with the root", err)
			}
			register(t, s, "api.A", "10.0.0.1:1")
			later(time.Minute)
			if k := certainty(table); k.Stale != nil || len(k.Unknown) > 0 {
				t.Errorf("certainty = %+v, want it not stale and none unknown", k)
			}
		},
		"a root that does not exist is warned of once, and read once it does": func(t *testing.T, s *zkfake.Server) {
			var log strings.Builder
			table := runLogged(t, s, slog.New(slog.NewTextHandler(&log, nil)))
			later(time.Hour)
			register(t, s, "api.A", "10.0.0.1:1")
			later(time.Minute)
			wantReported(t, table, "api.A=10.0.0.1:1")
			if n := strings.Count(log.String(), "root does not exist"); n != 1 || !strings.Contains(log.String(), "root=/dubbo") {
				t.Errorf("warnings = %d, want 1 with the root: %s", n, log.String())
			}
		},
		"an outage is warned of once, and a server that is back is read soon": func(t *testing.T, s *zkfake.Server) {
			var log strings.Builder
			var isAway atomic.Bool
			isAway.Store(true)
			register(t, s, "api.A", "10.0.0.1:1")
			table := runDialed(t, func(ctx context.Context, network, address string) (net.Conn, error) {
				if isAway.Load() {
					return nil, errors.New("connection refused")
				}
				return s.Dial(ctx, network, address)
			}, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
			later(10 * time.Minute)
			if n := strings.Count(log.String(), "level=WARN msg=\"zookeeper not read"); n != 1 || strings.Contains(log.String(), "retry_in=0s") {
				t.Errorf("%d warnings in ten minutes, want 1 and none of a retry in 0s:\n%s", n, log.String())
			}
			isAway.Store(false)
			later(3 * time.Second)
			wantReported(t, table, "api.A=10.0.0.1:1")
		},
		"a node that is not a provider affects only itself": func(t *testing.T, s *zkfake.Server) {
			register(t, s, "api.A", "10.0.0.1:1")
			must(t, s.Put(providers("api.A")+"/not%20a%20url", nil))
			must(t, s.Put(providers("api.A")+"/%7B%22id%22%3A1%7D", nil))
			table := runSource(t, s)
			later(time.Second)
			wantReported(t, table, "api.A=10.0.0.1:1")
			if n := len(table.Skipped()); n != 2 {
				t.Errorf("skipped inputs = %d, want 2: %v", n, table.Skipped())
			}
			s.Delete(providers("api.A") + "/not%20a%20url")
			later(time.Second)
			if n := len(table.Skipped()); n != 1 {
				t.Errorf("skipped inputs = %d, want 1: %v", n, table.Skipped())
			}
		},
		"a steady registry is not read again and again": func(t *testing.T, s *zkfake.Server) {
			for i := range 100 {
				register(t, s, fmt.Sprintf("api.S%d", i), "10.0.0.1:1")
			}
			table := runSource(t, s)
			later(time.Second)
			before := s.Count(zkfake.OpGetChildren2)
			register(t, s, "api.S7", "10.0.0.2:1")
			later(time.Minute)
			if n := s.Count(zkfake.OpGetChildren2) - before; n != 1 {
				t.Errorf("lists for one change = %d, want 1", n)
			}
			if n := len(published(table)); n != 100 {
				t.Errorf("services = %d, want 100", n)
			}
		},
	} {
		inVirtualTime(t, name, test)
	}
}

// TestSource_State counts the connections of a source, and knows during an outage when it
// was last connected.
func TestSource_State(t *testing.T) {
	inVirtualTime(t, "an outage", func(t *testing.T, server *zkfake.Server) {
		var away atomic.Bool
		source, _ := startSource(t, func(ctx context.Context, network, address string) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("connection refused")
			}
			return server.Dial(ctx, network, address)
		}, nil)
		later(time.Second)
		for outages := 1; outages <= 2; outages++ {
			lost := time.Now()
			away.Store(true)
			server.DropConnections()
			later(time.Minute)
			if state := source.State(); state.Connected || state.Since.Sub(lost).Abs() > time.Second {
				t.Errorf("connected %v since %s, want an outage since %s", state.Connected, state.Since, lost)
			}
			away.Store(false)
			later(time.Minute)
			if state := source.State(); !state.Connected || state.Sessions != 1+outages {
				t.Errorf("connected %v, %d sessions after %d outages", state.Connected, state.Sessions, outages)
			}
		}
	})
}
