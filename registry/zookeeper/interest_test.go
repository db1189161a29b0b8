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

func TestInterest_ReadsOwnNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		register(t, s, "api.A", "10.0.0.1:20880")
		register(t, s, "api.B", "10.0.0.2:20880")
		interest := registry.NewInterest()
		table := runInterest(t, s, interest)
		later(time.Second)
		wantReported(t, table)
		interest.Add("api.A", "api.C")
		later(time.Second)
		if a := interest.Answer("api.A"); !a.Reported || a.Err != nil {
			t.Errorf("Answer(api.A) = %+v, want it reported", a)
		}
		wantReported(t, table, "api.A=10.0.0.1:20880")
		register(t, s, "api.A", "10.0.0.3:20880")
		register(t, s, "api.C", "10.0.0.4:20880") // its parent comes later than the interest
		later(time.Second)
		wantReported(t, table, "api.A=10.0.0.1:20880,10.0.0.3:20880", "api.C=10.0.0.4:20880")
		interest.Drop("api.A")
		later(time.Second)
		wantReported(t, table, "api.C=10.0.0.4:20880")
	})
}

func TestInterest_DeletedRoot(t *testing.T) {
	for name, before := range map[string]bool{"it was there at first": true, "it came later": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t)
				if before {
					register(t, s, "api.A", "10.0.0.1:20880")
				}
				interest := registry.NewInterest()
				interest.Add("api.A")
				table := runInterest(t, s, interest)
				later(time.Second)
				register(t, s, "api.A", "10.0.0.1:20880")
				later(time.Second)
				wantReported(t, table, "api.A=10.0.0.1:20880")
				s.Delete("/dubbo")
				later(time.Minute)
				wantReported(t, table, "api.A=10.0.0.1:20880")
				if err := certainty(table).Of("dubbo-interface:/dubbo/providers:api.A::"); !errors.Is(err, zookeeper.ErrRootGone) {
					t.Errorf("Of(api.A) = %v, want ErrRootGone", err)
				}
			})
		})
	}
}

// TestInterest_MissingRoot: consumers may start in an ensemble
// in which no provider has registered, so that even the root is missing.
func TestInterest_MissingRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		interest := registry.NewInterest()
		interest.Add("api.A")
		table := runInterest(t, s, interest)
		later(time.Second)
		if a := interest.Answer("api.A"); !a.Reported || a.Err != nil {
			t.Errorf("Answer(api.A) = %+v, want it reported", a)
		}
		wantReported(t, table)
		register(t, s, "api.A", "10.0.0.1:20880")
		later(time.Second)
		wantReported(t, table, "api.A=10.0.0.1:20880")
	})
}

func TestInterest_Requests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		const n = 100
		for i := range n {
			register(t, s, fmt.Sprintf("api.S%d", i), "10.0.0.1:20880")
		}
		interest := registry.NewInterest()
		table := runInterest(t, s, interest)
		later(time.Second)
		before := requests(s)
		for i := range n {
			name := fmt.Sprintf("api.S%d", i)
			interest.Add(name)
			later(100 * time.Millisecond)
			if a := interest.Answer(name); !a.Reported || a.Err != nil {
				t.Fatalf("Answer(%s) = %+v, want it reported", name, a)
			}
		}
		if got := requests(s) - before; got > 3*n {
			t.Errorf("requests for %d services = %d, want 3 each at most", n, got)
		}
		if got := len(published(table)); got != n {
			t.Errorf("services = %d, want %d", got, n)
		}
	})
}

// requests returns how many requests of a source a server received.
func requests(s *zkfake.Server) int {
	n := 0
	for _, op := range []zkfake.Op{zkfake.OpGetChildren2, zkfake.OpExists, zkfake.OpGetData} {
		n += s.Count(op)
	}
	return n
}

// runInterest runs a Dubbo source of an interest until the test ends.
func runInterest(t *testing.T, s *zkfake.Server, interest *registry.Interest) *registry.Table {
	t.Helper()
	codec, err := dubbo.NewZooKeeper(dubbo.Options{})
	must(t, err)
	conn := zookeeper.Options{Servers: []string{"server:2181"}, Dial: s.Dial, SessionTimeout: 10 * time.Second}
	source, err := zookeeper.NewSource(conn, zookeeper.SourceOptions{Formats: []zookeeper.Format{codec}, Interest: interest})
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

func TestUnregistered_WritesEntriesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		must(t, s.PutEphemeral("/xds-bridge/"+owner+"/alive", []byte("of a bridge"), 4711))
		before := s.Paths("/xds-bridge")
		c := dial(t, s)
		unregistered := target(t, c, withSession, func(o *zookeeper.TargetOptions) { o.Unregistered = true })
		write(t, unregistered, creation(ours(1, 1, 1)))
		if left := s.Paths("/xds-bridge"); !slices.Equal(left, before) {
			t.Errorf("paths of /xds-bridge = %q, want %q", left, before)
		}
		if held := read(t, unregistered, groupN(1)); len(held) != 1 || !held[0].Live {
			t.Errorf("Read = %+v, want one live entry", held)
		}
		c.Close()
		later(time.Second)
		if left := s.Children(parentN(1)); len(left) > 0 {
			t.Errorf("nodes after the session = %q, want none", left)
		}
	})
}

// TestInterest_DeniedRoot: a ZooKeeper of 3.9 requires the right to read a node for a
// look whether it exists, too.
func TestInterest_DeniedRoot(t *testing.T) {
	for name, early := range map[string]bool{"asked for before the connection": true, "asked for later": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t)
				register(t, s, "api.A", "10.0.0.1:20880")
				s.SetFault(func(r zkfake.Request) zkfake.Fault {
					if slices.Contains(r.Paths, "/dubbo") {
						return zkfake.Fault{Code: -102}
					}
					return zkfake.Fault{}
				})
				interest := registry.NewInterest()
				if early {
					interest.Add("api.A")
				}
				table := runInterest(t, s, interest)
				later(time.Second)
				if !early {
					interest.Add("api.A")
					later(time.Second)
				}
				if a := interest.Answer("api.A"); a.Reported || !errors.Is(a.Err, registry.ErrRefused) {
					t.Errorf("Answer(api.A) = %+v, want ErrRefused", a)
				}
				s.SetFault(func(zkfake.Request) zkfake.Fault { return zkfake.Fault{} })
				later(time.Minute)
				wantReported(t, table, "api.A=10.0.0.1:20880")
			})
		})
	}
}
