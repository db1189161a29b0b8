package zookeeper_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// slowWrites makes every transaction in the tests' root last a second.
func slowWrites(server *zkfake.Server) {
	server.SetFault(func(r zkfake.Request) zkfake.Fault {
		if r.Op == zkfake.OpMulti && strings.Contains(strings.Join(r.Paths, " "), root) {
			return zkfake.Fault{Delay: time.Second}
		}
		return zkfake.Fault{}
	})
}

// TestFence_LeaseLostDuringWrite shows that a write in flight
// changes nothing once another leads, whatever this replica believes
// by then.
func TestFence_LeaseLostDuringWrite(t *testing.T) {
	t.Parallel()
	for name, ours := range map[string][]bool{ // the results of Fence, by call
		"at once":       {true, false},
		"a moment late": {true, true, false},
		"never":         {true, true, true},
	} {
		inVirtualTime(t, name, func(t *testing.T, server *zkfake.Server) {
			fence, asked := zookeeper.Fence{Term: 7, Holder: "a"}, 0
			client, other := dial(t, server), dial(t, server)
			defer client.Close()
			defer other.Close()
			tg := target(t, client, func(o *zookeeper.TargetOptions) {
				o.Fence = func() (zookeeper.Fence, bool) {
					asked++
					return fence, ours[min(asked, len(ours))-1]
				}
			})
			next := target(t, other, withFence(&zookeeper.Fence{Term: 8, Holder: "b"}, nil))
			write(t, tg, creation(entry(owner)(0, 1, 0)))
			slowWrites(server)
			asked = 0
			written := make(chan error)
			go func() { written <- tg.Write(t.Context(), creation(entry(owner)(0, 2, 0))) }()
			time.Sleep(time.Second / 2)
			read(t, next, groupN(0)) // a new leader begins with it
			if err := <-written; !errors.Is(err, registry.ErrFenced) {
				t.Errorf("Write = %v, want ErrFenced", err)
			}
			if got := server.Children(parentN(0)); len(got) != 1 {
				t.Errorf("nodes = %q, want 1", got)
			}
		})
	}
}

// TestWrite_ConcurrentChange shows that a node that another
// changed, or created anew, after it was read is neither replaced nor deleted.
func TestWrite_ConcurrentChange(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(registry.Stored) registry.Change{
		"replaced": func(h registry.Stored) registry.Change {
			return registry.Change{Group: h.Group, Put: []registry.Write{{New: ours(0, 1, 5), Old: &h}}, Want: []registry.Entry{ours(0, 1, 5)}}
		},
		"replaced, of an earlier session": func(h registry.Stored) registry.Change {
			h.Live = false
			return registry.Change{Group: h.Group, Put: []registry.Write{{New: ours(0, 1, 5), Old: &h}}, Want: []registry.Entry{ours(0, 1, 5)}}
		},
		"deleted": func(h registry.Stored) registry.Change {
			return registry.Change{Group: h.Group, Delete: []registry.Stored{h}}
		},
	} {
		for how, meddle := range map[string]func(*zkfake.Server, string) error{
			"its data was changed": func(s *zkfake.Server, path string) error { return s.Put(path, []byte("another's")) },
			"it was created again, as by a provider whose node another session held": func(s *zkfake.Server, path string) error {
				s.Delete(path)
				return s.Put(path, []byte("another's")) // the first version of a node, as ours was
			},
		} {
			inVirtualTime(t, name+": "+how, func(t *testing.T, server *zkfake.Server) {
				client := dial(t, server)
				defer client.Close()
				tg := target(t, client, withData)
				write(t, tg, creation(ours(0, 1, 0)))
				held := read(t, tg, groupN(0))
				slowWrites(server)
				written := make(chan error)
				go func() { written <- tg.Write(t.Context(), change(held[0])) }()
				time.Sleep(time.Second / 2)
				path, _ := pathOf(t, layout{data: true}, ours(0, 1, 0))
				must(t, meddle(server, path))
				if err := <-written; !errors.Is(err, registry.ErrConflict) {
					t.Errorf("Write = %v, want ErrConflict", err)
				}
				if n, there := server.Get(path); !there || string(n.Data) != "another's" {
					t.Errorf("node = %q, %v, want that of another", n.Data, there)
				}
			})
		}
	}
}

// TestLedger_InterruptedChange shows that what is still to be deleted
// stays in the ledger until it is.
func TestLedger_InterruptedChange(t *testing.T) {
	t.Parallel()
	server := serve(t)
	service := &registry.Service{Name: "greet", Interfaces: []registry.Interface{{Name: "api.Greeter"}}}
	for i := range 200 {
		service.Endpoints = append(service.Endpoints, registry.Endpoint{Host: fmt.Sprintf("10.0.0.%d", i), Port: 20000, Health: registry.Healthy})
	}
	entries, err := codec(t).Encode(service)
	must(t, err)
	tg := target(t, dial(t, server), withDubbo(t, nil))
	write(t, tg, creation(entries...))
	change, _ := planned(read(t, tg, entries[0].Group), entries[150:])
	if len(change.Delete) != 150 {
		t.Fatalf("deletions = %d, want 150", len(change.Delete))
	}
	parts := 0
	server.SetFault(func(r zkfake.Request) zkfake.Fault {
		if r.Op == zkfake.OpMulti && strings.Contains(strings.Join(r.Paths, " "), "api.Greeter") {
			if parts++; parts > 1 {
				return zkfake.Fault{Cut: zkfake.CutBefore}
			}
		}
		return zkfake.Fault{}
	})
	if err := tg.Write(t.Context(), change); err == nil {
		t.Fatal("Write whose second part fails: got no error, want one")
	}
	server.SetFault(nil)
	removeMark(t, server, entries[0]) // the last that would have gone
	for _, h := range read(t, target(t, dial(t, server), withDubbo(t, nil)), entries[0].Group) {
		if h.Owner == "" {
			t.Errorf("Read: %s has no owner, want ours by the ledger", h.Key)
		}
	}
}
