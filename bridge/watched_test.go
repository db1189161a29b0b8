package bridge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// TestLoop_OtherWriters shows what others do to a ZooKeeper that is written to, and
// that it is as it was within a second, with the default refresh of five minutes.
func TestLoop_OtherWriters(t *testing.T) {
	const folder = "/dubbo/api.Shared/providers"
	for name, happens := range map[string]func(*zkfake.Server){
		"delete an entry": func(s *zkfake.Server) { s.Delete(folder + "/" + s.Children(folder)[0]) },
		"delete a folder": func(s *zkfake.Server) { s.Delete(folder) },
		"delete the root": func(s *zkfake.Server) { s.Delete("/dubbo") },
		"delete just after a write": func(s *zkfake.Server) {
			time.Sleep(time.Millisecond)
			s.Delete("/dubbo")
		},
		"delete again and again": func(s *zkfake.Server) {
			for range 30 {
				time.Sleep(300 * time.Millisecond)
				s.Delete(folder)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := zkfake.New(zkfake.Options{})
				defer server.Close() //nolint:errcheck // it has no listener
				table := registry.NewTable()
				loop := into(t, server, "first", table)
				table.Replace(slices.Values([]*registry.Service{shared()}))
				if time.Sleep(time.Minute); strings.HasPrefix(name, "delete just") {
					more := shared()
					more.Endpoints = append(more.Endpoints, registry.Endpoint{Host: "10.0.0.2", Port: 20000})
					table.Put(more)
				}
				happens(server)
				time.Sleep(time.Second)
				if n := len(server.Children(folder)); n < 1 {
					t.Errorf("Children() = %d entries after a second, want what was there", n)
				}
				if st := loop.Status(); !st.InSync() {
					t.Errorf("Status() = %+v, want it in sync", st)
				}
				before := server.Changes()
				time.Sleep(time.Hour)
				if n := server.Changes() - before; n != 0 {
					t.Errorf("%d changes in an hour in which nothing happened", n)
				}
			})
		})
	}
	t.Run("give way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := zkfake.New(zkfake.Options{})
			defer server.Close() //nolint:errcheck // it has no listener
			tables := make(map[string]*registry.Table)
			for _, owner := range []string{"first", "second"} {
				tables[owner] = registry.NewTable()
				into(t, server, owner, tables[owner])
				tables[owner].Replace(slices.Values([]*registry.Service{shared()}))
				time.Sleep(time.Minute)
			}
			tables["first"].Delete("shared")
			const step = 10 * time.Millisecond
			away := time.Duration(0)
			for range 2 * time.Minute / step {
				if time.Sleep(step); len(server.Children(folder)) == 0 {
					away += step
				}
			}
			if names := server.Children(folder); len(names) != 1 || !strings.Contains(names[0], metadata.NewMark("second", "b").Owner) || away > time.Second {
				t.Errorf("Children() = %v, without any for %v, want the entry of the second within a second", names, away)
			}
		})
	})
}

// TestLoop_AnInstanceOfAnotherThatFlaps has one come and go 40 times a second beside
// ours: each change costs no reading of its own.
func TestLoop_AnInstanceOfAnotherThatFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const folder = "/dubbo/api.Shared/providers"
		server := zkfake.New(zkfake.Options{})
		defer server.Close() //nolint:errcheck // it has no listener
		table := registry.NewTable()
		loop := into(t, server, "first", table)
		table.Replace(slices.Values([]*registry.Service{shared()}))
		time.Sleep(time.Minute)
		before := server.Count(zkfake.OpGetChildren2)
		for range 400 {
			if err := server.Put(folder+"/another", nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
			server.Delete(folder + "/another")
			time.Sleep(5 * time.Millisecond)
		}
		if n := server.Count(zkfake.OpGetChildren2) - before; n < 10 || n > 25 {
			t.Errorf("listed %d times in ten seconds, want twice a second", n)
		}
		if st := loop.Status(); !st.InSync() {
			t.Errorf("Status() = %+v, want it in sync", st)
		}
		server.Delete(folder)
		time.Sleep(time.Second)
		if names := server.Children(folder); len(names) != 1 {
			t.Errorf("Children() = %v a second after all of them went, want ours", names)
		}
	})
}

// TestLoop_OtherWritersOfAFullFolder has a folder with no room for some of its
// entries, which are tried again and again.
func TestLoop_OtherWritersOfAFullFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const folder = "/dubbo/api.Shared/providers"
		server := zkfake.New(zkfake.Options{})
		defer server.Close() //nolint:errcheck // it has no listener
		codec, err := dubbo.NewZooKeeper(dubbo.Options{Mark: metadata.NewMark("first", "b")})
		if err != nil {
			t.Fatal(err)
		}
		table := registry.NewTable()
		opts := zookeeper.TargetOptions{Owner: "first", Layouts: []zookeeper.Layout{codec}, ChildrenLimit: 1000}
		loop := intoAs(t, server, opts, codec, table)
		many := shared()
		for n := range 9 {
			many.Endpoints = append(many.Endpoints, registry.Endpoint{Host: fmt.Sprint("10.0.1.", n+1), Port: 20000})
		}
		table.Replace(slices.Values([]*registry.Service{many}))
		time.Sleep(3 * time.Minute)
		before := server.Children(folder)
		if st := loop.Status(); len(before) == 10 || st.Services[0].Reason != bridge.ReasonRefused {
			t.Fatalf("Children() = %d entries, Status() = %+v, want some of ten refused", len(before), st)
		}
		server.Delete(folder + "/" + before[0])
		time.Sleep(time.Second)
		if after := server.Children(folder); len(after) != len(before) {
			t.Errorf("Children() = %d entries after a second, want %d", len(after), len(before))
		}
	})
}

// TestLoop_OtherWritersOfAnApplication shows what others delete of an application,
// which has lists beside the folder of its instances.
func TestLoop_OtherWritersOfAnApplication(t *testing.T) {
	for _, gone := range []string{"/services", "/dubbo", "/dubbo/metadata", "/dubbo/shop", "/dubbo/mapping", "/dubbo/mapping/api.Shared"} {
		t.Run("delete "+gone, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := zkfake.New(zkfake.Options{})
				defer server.Close() //nolint:errcheck // it has no listener
				codec, err := dubbo.NewZooKeeperApp(dubbo.Options{Mark: metadata.NewMark("first", "b")})
				if err != nil {
					t.Fatal(err)
				}
				table := registry.NewTable()
				loop := intoAs(t, server, zookeeper.TargetOptions{Owner: "first", Layouts: []zookeeper.Layout{codec}}, codec, table)
				shop := shared()
				shop.Application = "shop"
				table.Replace(slices.Values([]*registry.Service{shop}))
				time.Sleep(time.Minute)
				before := server.Paths("/")
				server.Delete(gone)
				time.Sleep(time.Second)
				if after := server.Paths("/"); !slices.Equal(after, before) {
					t.Errorf("Paths() = %v after a second, want %v", after, before)
				}
				if st := loop.Status(); !st.InSync() {
					t.Errorf("Status() = %+v, want it in sync", st)
				}
				changes := server.Changes()
				time.Sleep(time.Hour)
				if n := server.Changes() - changes; n != 0 {
					t.Errorf("%d changes in an hour in which nothing happened", n)
				}
			})
		})
	}
}
