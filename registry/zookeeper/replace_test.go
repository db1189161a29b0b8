package zookeeper_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

func withOverlap(o *zookeeper.TargetOptions) {
	o.Layouts = []zookeeper.Layout{layout{replaces: metadata.Overlapping}}
}

// keeping is a change of an entry that keeps the old one.
func keeping(old registry.Stored, next registry.Entry) registry.Change {
	return registry.Change{
		Group: next.Group, Put: []registry.Write{{New: next, Old: &old, KeepOld: true}},
		Want: registry.Sorted([]registry.Entry{old.Entry, next}),
	}
}

// Dubbo-go's consumers have no provider between the end of a node and the
// beginning of the next, though both are one transaction.
func TestReplace_Overlapping(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T, tune ...func(*zookeeper.TargetOptions)) (*zkfake.Server, *zookeeper.Target, []registry.Stored) {
		t.Helper()
		server := serve(t)
		tg := target(t, dial(t, server), append(tune, withOverlap)...)
		write(t, tg, creation(ours(0, 0, 0)))
		write(t, tg, keeping(read(t, tg, groupN(0))[0], ours(0, 0, 1)))
		return server, tg, read(t, tg, groupN(0))
	}
	finish := registry.Change{Group: groupN(0), Want: []registry.Entry{ours(0, 0, 1)}}
	t.Run("both nodes are there, and both are ours under one key", func(t *testing.T) {
		t.Parallel()
		server, tg, held := start(t)
		if len(held) != 2 || held[0].Entry != ours(0, 0, 0) || held[1].Entry != ours(0, 0, 1) || held[0].Owner != held[1].Owner {
			t.Fatalf("Read = %v, want both nodes of one owner", held)
		}
		change := finish
		change.Delete = held[:1]
		write(t, tg, change)
		if got := read(t, tg, groupN(0)); len(got) != 1 || got[0].Entry != ours(0, 0, 1) {
			t.Errorf("Read = %v of nodes %q, want only %v", got, server.Children(parentN(0)), ours(0, 0, 1))
		}
	})
	t.Run("another process finds both, and writes nothing", func(t *testing.T) {
		t.Parallel()
		server, _, held := start(t)
		if again := read(t, target(t, dial(t, server), withOverlap), groupN(0)); !slices.Equal(again, held) {
			t.Errorf("Read by another process = %v, want %v", again, held)
		}
	})
	t.Run("the one before stays where what replaced it is gone", func(t *testing.T) {
		t.Parallel()
		server, tg, held := start(t)
		path, _ := pathOf(t, layout{}, ours(0, 0, 1))
		server.Delete(path)
		change := finish
		change.Delete = held[:1]
		if err := tg.Write(t.Context(), change); !errors.Is(err, registry.ErrConflict) {
			t.Errorf("Write = %v, want ErrConflict", err)
		}
		if names := server.Children(parentN(0)); len(names) != 1 || !strings.Contains(names[0], "v0") {
			t.Errorf("nodes = %q, want the one before", names)
		}
	})
	t.Run("a parent without room for both has only the new node", func(t *testing.T) {
		t.Parallel()
		server := serve(t)
		names := manyEntries(0, 0, 20)
		var room int
		for _, e := range names {
			path, _ := pathOf(t, layout{}, e)
			room += len(path) - len(parentN(0)) + 4
		}
		tg := target(t, dial(t, server), withOverlap, func(o *zookeeper.TargetOptions) { o.ChildrenLimit = room + 3*60 })
		write(t, tg, creation(names...))
		change := registry.Change{Group: groupN(0)}
		for i, h := range read(t, tg, groupN(0)) {
			var n int
			if _, err := fmt.Sscanf(h.Key, "tri://10.0.0.%d:", &n); err != nil {
				t.Fatal(i, err)
			}
			change.Put = append(change.Put, registry.Write{New: ours(0, n, 1), Old: &h, KeepOld: true})
			change.Want = append(change.Want, ours(0, n, 1), h.Entry)
		}
		change.Want = registry.Sorted(change.Want)
		write(t, tg, change)
		held := read(t, tg, groupN(0))
		next := slices.DeleteFunc(slices.Clone(held), func(h registry.Stored) bool { return !strings.Contains(h.Value, "|v1|") })
		if len(next) != 20 || len(held) == 20 || len(held) > 23 {
			t.Errorf("nodes = %d, %d of them new, want 20 new and as many others as have room", len(held), len(next))
		}
	})
	t.Run("a format that is replaced in place does not overlap", func(t *testing.T) {
		t.Parallel()
		_, tg, _ := start(t)
		if d := tg.Overlap(groupN(0)); d != zookeeper.Overlap {
			t.Errorf("Overlap = %s, want %s", d, zookeeper.Overlap)
		}
		if d := target(t, dial(t, serve(t))).Overlap(groupN(0)); d != 0 {
			t.Errorf("Overlap of a format that replaces in place = %s, want 0", d)
		}
	})
}

// Kratos only watches the names of the nodes.
func TestReplace_Recreated(t *testing.T) {
	t.Parallel()
	server := serve(t)
	tg := target(t, dial(t, server), func(o *zookeeper.TargetOptions) {
		o.Layouts = []zookeeper.Layout{layout{data: true, replaces: metadata.Recreated}}
	})
	write(t, tg, creation(ours(0, 0, 0)))
	path, _ := pathOf(t, layout{data: true}, ours(0, 0, 0))
	first, _ := server.Get(path)
	held, before := read(t, tg, groupN(0)), server.Changes()
	change := registry.Change{Group: groupN(0), Put: []registry.Write{{New: ours(0, 0, 1), Old: &held[0]}}, Want: []registry.Entry{ours(0, 0, 1)}}
	write(t, tg, change)
	again, _ := server.Get(path)
	if again.Stat.Czxid == first.Stat.Czxid || !strings.Contains(string(again.Data), "|v1|") || server.Changes()-before != 1 {
		t.Errorf("node = %+v after %+v in %d changes, want another node in one", again, first, server.Changes()-before)
	}
	if err := tg.Write(t.Context(), change); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Write after another changed the node = %v, want ErrConflict", err)
	}
}

// TestReplace_Formats: how each format is replaced is what its consumers see.
func TestReplace_Formats(t *testing.T) {
	t.Parallel()
	want := map[string]metadata.Replacement{"/dubbo/*/providers": metadata.Overlapping, "/microservices/*": metadata.Recreated}
	for _, f := range allFormats(t) {
		if l, ok := f.(zookeeper.Layout); !ok || l.Replaces() != want[l.Parents()] {
			t.Errorf("%s: Replaces() is not %v, or it is not a Layout (%v)", f.Parents(), want[f.Parents()], ok)
		}
	}
}
