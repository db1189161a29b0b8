package zookeeper_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// TestSource_WatchesDoNotGrowWithTime: the library keeps a channel for each
// time that a watch is armed, until it fires.
func TestSource_WatchesDoNotGrowWithTime(t *testing.T) {
	fill := func(t *testing.T, s *zkfake.Server) {
		for i := range 20 {
			register(t, s, fmt.Sprintf("api.S%d", i), "10.0.0.1:1")
			registerApplication(t, s, fmt.Sprintf("app%d", i), "10.0.0.1", "r1")
			registerSpring(t, s, fmt.Sprintf("spring%d", i), 1)
		}
	}
	// costs fails the test where hours add watches, or goroutines.
	costs := func(t *testing.T, s *zkfake.Server, spare int, hours func()) {
		later(10 * time.Minute)
		watches, again := s.Watches()
		goroutines := runtime.NumGoroutine()
		hours()
		later(10 * time.Minute)
		after, more := s.Watches()
		if more > again {
			t.Errorf("watches armed again = %d, want none", more-again)
		}
		if after > watches+spare {
			t.Errorf("watches = %d, want about %d as before", after, watches)
		}
		if n := runtime.NumGoroutine(); n > goroutines+conformance.StrayGoroutines {
			t.Errorf("goroutines = %d, want about %d as before", n, goroutines)
		}
	}
	inVirtualTime(t, "hours in which nothing happens", func(t *testing.T, s *zkfake.Server) {
		fill(t, s)
		table := runFormats(t, s)
		costs(t, s, 0, func() { later(conformance.Long()) })
		if rows, _ := table.Snapshot(); len(rows) != 60 {
			t.Errorf("services = %d, want 60", len(rows))
		}
	})
	inVirtualTime(t, "hours of changes", func(t *testing.T, s *zkfake.Server) {
		fill(t, s)
		table := runFormats(t, s)
		minutes := int(conformance.Long() / time.Minute / 2)
		costs(t, s, 0, func() {
			for i := range minutes {
				registerSpring(t, s, "spring7", 1)                                // written again
				registerApplication(t, s, "app7", "10.0.0.1", fmt.Sprint("r", i)) // a new revision
				register(t, s, "api.S7", fmt.Sprintf("10.0.1.%d:1", i%250))       // one more, one less
				s.Delete(provider("api.S7", fmt.Sprintf("10.0.1.%d:1", (i+249)%250)))
				s.Delete("/dubbo/metadata/app7/" + fmt.Sprint("r", i-1))
				later(30 * time.Second)
				s.Delete("/dubbo/api.day" + strconv.Itoa(i-1)) // a service for half a minute
				s.Delete("/spring/day" + strconv.Itoa(i-1))
				register(t, s, "api.day"+strconv.Itoa(i), "10.0.0.1:1")
				registerSpring(t, s, "day"+strconv.Itoa(i), 1)
				later(30 * time.Second)
			}
			s.Delete(fmt.Sprint("/dubbo/api.day", minutes-1))
			s.Delete(fmt.Sprint("/spring/day", minutes-1))
		})
		if rows, _ := table.Snapshot(); len(rows) != 60 {
			t.Errorf("services = %d, want 60", len(rows))
		}
	})
	inVirtualTime(t, "names of an interest that change for hours", func(t *testing.T, s *zkfake.Server) {
		fill(t, s)
		interest := registry.NewInterest()
		interest.Add("api.S1", "app1", "spring1")
		table := runFormats(t, s, func(o *zookeeper.SourceOptions) { o.Interest = interest })
		costs(t, s, 300, func() {
			for i := range 300 {
				name := fmt.Sprint("api.never", i)
				interest.Add(name)
				later(30 * time.Second)
				interest.Drop(name)
			}
		})
		if rows, _ := table.Snapshot(); len(rows) != 3 {
			t.Errorf("services = %d, want 3", len(rows))
		}
	})
}

func TestSource_RequestsOfChange(t *testing.T) {
	inVirtualTime(t, "one of 500", func(t *testing.T, s *zkfake.Server) {
		const n = 500
		for i := range n {
			registerApplication(t, s, "shop", fmt.Sprintf("10.0.%d.%d", i/250, i%250), "r1")
		}
		table := runFormats(t, s)
		later(time.Minute)
		for what, change := range map[string]func(){
			"a node that came":    func() { registerApplication(t, s, "shop", "10.9.9.9", "r1") },
			"a deleted node":      func() { s.Delete("/services/shop/10.0.0.7:1") },
			"a node that changed": func() { registerApplication(t, s, "shop", "10.0.0.8", "r1") },
		} {
			before := requests(s)
			change()
			later(time.Second)
			if got := requests(s) - before; got > 3 {
				t.Errorf("requests of %s for %d nodes = %d, want 3 at most", what, n, got)
			}
		}
		if row := table.Get("dubbo-application:/services/shop/providers:api.shop::"); len(row.Endpoints) != n {
			t.Errorf("endpoints = %d, want %d", len(row.Endpoints), n)
		}
	})
}

func TestSource_ConfirmsByConnection(t *testing.T) {
	inVirtualTime(t, "two servers", func(t *testing.T, s *zkfake.Server) {
		var dialed []string
		conn := zookeeper.Options{Servers: []string{"a:2181", "b:2181/app"}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialed = append(dialed, address)
			return s.Dial(ctx, network, address)
		}}
		register(t, s, "api.A", "10.0.0.1:1")
		source, err := zookeeper.NewSource(conn, zookeeper.SourceOptions{Formats: threeFormats(t)})
		must(t, err)
		table := registry.NewTable()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- source.Run(ctx, table) }()
		defer func() {
			cancel()
			must(t, <-done)
		}()
		later(time.Hour)
		if k := certainty(table); k.Dials != 1 || k.Epoch < 10 {
			t.Errorf("readings = %d, of new connections %d, want 10 at least and 1", k.Epoch, k.Dials)
		}
		source.Recheck()
		later(time.Minute)
		if k := certainty(table); k.Dials != 2 || k.Stale != nil || len(dialed) != 2 || dialed[0] == dialed[1] {
			t.Errorf("certainty = %+v, dialed %q, want another server", k, dialed)
		}
	})
}

func TestSource_WaitsForAServerThatLags(t *testing.T) {
	inVirtualTime(t, "one provider behind", func(t *testing.T, s *zkfake.Server) {
		register(t, s, "api.A", "10.0.0.1:1")
		s.Lag()
		register(t, s, "api.A", "10.0.0.2:1")
		register(t, s, "api.B", "10.0.0.3:1")
		table := runFormats(t, s)
		later(time.Second)
		wantReported(t, table, "api.A=10.0.0.1:1,10.0.0.2:1", "api.B=10.0.0.3:1")
	})
}
