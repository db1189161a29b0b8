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

func manyEntries(n, from, to int) []registry.Entry {
	var out []registry.Entry
	for i := from; i < to; i++ {
		out = append(out, ours(n, i, 0))
	}
	return out
}

func TestWrite_CreatesInOneTransaction(t *testing.T) {
	t.Parallel()
	server := serve(t)
	target := target(t, dial(t, server))
	write(t, target, creation(manyEntries(0, 0, 10)...))
	write(t, target, creation(manyEntries(1, 0, 10)...))
	if got := server.Count(zkfake.OpMulti); got != 2 {
		t.Errorf("transactions = %d, want one for each group", got)
	}
	if got := server.Changes(); got != 2 {
		t.Errorf("changes = %d, want one for each group", got)
	}
	if names := server.Children(parentN(0)); len(names) != 10 {
		t.Errorf("nodes = %q, want 10", names)
	}
	node, _ := server.Get(parentN(0) + "/" + server.Children(parentN(0))[0])
	if node.Stat.EphemeralOwner != 0 || node.Stat.Version != 0 || len(node.Data) != 0 {
		t.Errorf("node = %+v, want a persistent node written once", node)
	}
}

func TestWrite_ReplacesInOneTransaction(t *testing.T) {
	t.Parallel()
	server := serve(t)
	target := target(t, dial(t, server))
	write(t, target, creation(ours(0, 0, 0)))
	before := server.Changes()
	held := read(t, target, groupN(0))
	write(t, target, registry.Change{Group: groupN(0), Put: []registry.Write{{New: ours(0, 0, 1), Old: &held[0]}}})
	if got := server.Changes() - before; got != 1 {
		t.Errorf("changes = %d, want 1", got)
	}
	if names := server.Children(parentN(0)); len(names) != 1 || !strings.Contains(names[0], "v1") {
		t.Errorf("nodes = %q, want that of the new entry", names)
	}
}

func TestWrite_SplitsLargeChanges(t *testing.T) {
	t.Parallel()
	server := serve(t)
	tg := target(t, dial(t, server))
	write(t, tg, creation(manyEntries(0, 0, 150)...))
	old := read(t, tg, groupN(0))
	fewest, biggest := 150, 0
	server.SetFault(func(r zkfake.Request) zkfake.Fault {
		if r.Op == zkfake.OpMulti {
			biggest = max(biggest, len(r.Paths))
		}
		return zkfake.Fault{}
	})
	change := creation(manyEntries(0, 200, 350)...)
	change.Delete = old
	// Cut off after each transaction, as a bridge that is killed: what is
	// left is whole entries, never fewer than there were, and the next run
	// finishes.
	for cut := 1; ; cut++ {
		seen := 0
		server.SetFault(func(r zkfake.Request) zkfake.Fault {
			if r.Op != zkfake.OpMulti {
				return zkfake.Fault{}
			}
			biggest = max(biggest, len(r.Paths))
			if seen++; seen == 2 {
				return zkfake.Fault{Cut: zkfake.CutBefore}
			}
			return zkfake.Fault{}
		})
		again := target(t, dial(t, server)) // a new process
		err := again.Write(t.Context(), difference(read(t, again, groupN(0)), change.Want))
		fewest = min(fewest, len(server.Children(parentN(0))))
		if err == nil {
			break
		}
		if cut > 20 {
			t.Fatal(err)
		}
	}
	if fewest < 150 || biggest > 100 {
		t.Errorf("fewest nodes = %d, most operations = %d, want 150 at least and 100 at most", fewest, biggest)
	}
	if got := read(t, tg, groupN(0)); len(got) != 150 || got[0].Key != ours(0, 200, 0).Key {
		t.Errorf("Read = %d entries, the first %v, want 150 from %s on", len(got), got[0], ours(0, 200, 0).Key)
	}
}

// difference is the change from the held to the desired entries.
func difference(held []registry.Stored, want []registry.Entry) registry.Change {
	c := registry.Change{Group: groupN(0), Want: want}
	for _, e := range want {
		if !slices.ContainsFunc(held, func(h registry.Stored) bool { return h.Entry == e }) {
			c.Put = append(c.Put, registry.Write{New: e})
		}
	}
	for _, h := range held {
		if !slices.Contains(want, h.Entry) {
			c.Delete = append(c.Delete, h)
		}
	}
	return c
}

func TestWrite_NothingChanged(t *testing.T) {
	t.Parallel()
	for name, tune := range map[string]func(*zookeeper.TargetOptions){
		"names": func(*zookeeper.TargetOptions) {}, "data": withData,
	} {
		t.Run("a restart reads what was written and writes nothing: "+name, func(t *testing.T) {
			t.Parallel()
			server := serve(t)
			write(t, target(t, dial(t, server), tune), creation(manyEntries(0, 0, 5)...))
			before := server.Changes()
			again := target(t, dial(t, server), tune)
			groups, err := again.Groups(t.Context())
			must(t, err)
			if !slices.Equal(groups, []registry.Group{groupN(0)}) {
				t.Fatalf("Groups = %v, want %v", groups, groupN(0))
			}
			change := difference(read(t, again, groupN(0)), manyEntries(0, 0, 5))
			write(t, again, change)
			if !change.Empty() || server.Changes() != before {
				t.Errorf("change = %+v after %d changes, want none", change, server.Changes()-before)
			}
		})
	}
}

func TestWrite_ComparesContent(t *testing.T) {
	t.Parallel()
	for name, tune := range map[string]func(*zookeeper.TargetOptions){
		"names": func(*zookeeper.TargetOptions) {}, "data": withData,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := target(t, dial(t, serve(t)), tune)
			believed := func(e registry.Entry) *registry.Stored {
				return &registry.Stored{Entry: e, Owner: metadata.NewMark(owner, "b").Owner, Live: true}
			}
			replace := func(old, now registry.Entry) registry.Change {
				return registry.Change{Group: groupN(0), Put: []registry.Write{{New: now, Old: believed(old)}}, Want: []registry.Entry{now}}
			}
			first, second, third := ours(0, 0, 0), ours(0, 0, 1), ours(0, 0, 2)
			write(t, target, creation(first))
			write(t, target, replace(first, second))
			if err := target.Write(t.Context(), replace(first, third)); !errors.Is(err, registry.ErrConflict) {
				t.Errorf("Write over what does not exist any more = %v, want ErrConflict", err)
			}
			if held := read(t, target, groupN(0)); len(held) != 1 || held[0].Entry != second {
				t.Errorf("Read = %v, want %v", held, second)
			}
			write(t, target, registry.Change{Group: groupN(0), Delete: []registry.Stored{*believed(second)}})
			if held := read(t, target, groupN(0)); len(held) != 0 {
				t.Errorf("Read = %v, want none", held)
			}
		})
	}
}

func TestWrite_DeletedRoot(t *testing.T) {
	t.Parallel()
	server := serve(t)
	target := target(t, dial(t, server))
	write(t, target, creation(manyEntries(0, 0, 3)...))
	server.Delete(root)
	if held := read(t, target, groupN(0)); len(held) != 0 {
		t.Fatalf("Read of a deleted root = %v, want none", held)
	}
	write(t, target, creation(manyEntries(0, 0, 3)...))
	server.Delete(root)
	write(t, target, creation(manyEntries(0, 0, 3)...)) // without a look before
	if held := read(t, target, groupN(0)); len(held) != 3 {
		t.Errorf("Read = %v, want 3 entries", held)
	}
}

func TestWrite_KeepsParents(t *testing.T) {
	t.Parallel()
	server := serve(t)
	target := target(t, dial(t, server))
	write(t, target, creation(ours(0, 0, 0)))
	write(t, target, registry.Change{Group: groupN(0), Delete: read(t, target, groupN(0))})
	if _, ok := server.Get(parentN(0)); !ok {
		t.Error("the parent was deleted with its last entry, want it kept")
	}
}

func TestWrite_SeveralNodesOfOneKey(t *testing.T) {
	t.Parallel()
	t.Run("our node next to a foreign node has the same key, and is deleted alone", func(t *testing.T) {
		t.Parallel()
		server := serve(t)
		target := target(t, dial(t, server))
		write(t, target, creation(ours(0, 0, 0)))
		path, _ := pathOf(t, layout{}, theirs(0, 0, 0))
		must(t, server.Put(path, nil))
		held := read(t, target, groupN(0))
		i := slices.IndexFunc(held, func(h registry.Stored) bool { return h.Entry == ours(0, 0, 0) })
		if len(held) != 2 || i < 0 || held[0].Key != held[1].Key || held[1-i].Entry != theirs(0, 0, 0) {
			t.Fatalf("Read = %v, want ours and the foreign one under one key", held)
		}
		write(t, target, registry.Change{Group: groupN(0), Delete: held[i : i+1]})
		if names := server.Children(parentN(0)); len(names) != 1 || !strings.Contains(path, names[0]) {
			t.Errorf("nodes = %q, want the foreign one", names)
		}
	})
	t.Run("of our two nodes the desired one stays", func(t *testing.T) {
		t.Parallel()
		server := serve(t)
		target := target(t, dial(t, server))
		write(t, target, creation(ours(0, 0, 0)))
		path, _ := pathOf(t, layout{}, ours(0, 0, 1))
		must(t, server.Put(path, nil))
		held := read(t, target, groupN(0))
		i := slices.IndexFunc(held, func(h registry.Stored) bool { return h.Entry == ours(0, 0, 0) })
		if i < 0 {
			t.Fatalf("Read = %v, want %v among them", held, ours(0, 0, 0))
		}
		write(t, target, registry.Change{Group: groupN(0), Put: []registry.Write{{New: ours(0, 0, 1), Old: &held[i]}}})
		if got := read(t, target, groupN(0)); len(got) != 1 || got[0].Entry != ours(0, 0, 1) {
			t.Errorf("Read = %v, want only %v", got, ours(0, 0, 1))
		}
	})
	t.Run("our node with a strange name is an orphan, and can be deleted", func(t *testing.T) {
		t.Parallel()
		server := serve(t)
		target := target(t, dial(t, server))
		strange := parentN(0) + "/n" + strings.ReplaceAll(ours(0, 0, 0).Value, "/", "%2f") // not as we write it
		must(t, server.Put(strange, nil))
		held := read(t, target, groupN(0))
		if len(held) != 1 || held[0].Key[0] != '/' || held[0].Owner != metadata.NewMark(owner, "").Owner {
			t.Fatalf("Read = %v, want our entry under the name of the node", held)
		}
		write(t, target, registry.Change{Group: groupN(0), Delete: held})
		if names := server.Children(parentN(0)); len(names) != 0 {
			t.Errorf("nodes = %q, want none", names)
		}
	})
}

func TestWrite_Foreign(t *testing.T) {
	t.Parallel()
	server := serve(t)
	target := target(t, dial(t, server), withData)
	must(t, server.Put(parentN(0)+"/garbage \u202e", []byte("not of this format")))
	path, _ := pathOf(t, layout{data: true}, ours(0, 0, 0))
	must(t, server.Put(path, []byte(theirs(0, 0, 0).Value)))
	t.Run("a foreign node is not overwritten by a blind create", func(t *testing.T) {
		if err := target.Write(t.Context(), creation(ours(0, 0, 0))); !errors.Is(err, registry.ErrConflict) {
			t.Errorf("Write = %v, want ErrConflict", err)
		}
	})
	t.Run("a node that another process created instead of ours is not deleted", func(t *testing.T) {
		write(t, target, creation(ours(0, 1, 0)))
		held := read(t, target, groupN(0))
		i := slices.IndexFunc(held, func(h registry.Stored) bool { return h.Entry == ours(0, 1, 0) })
		path, _ := pathOf(t, layout{data: true}, ours(0, 1, 0))
		server.Delete(path)
		must(t, server.Put(path, []byte(theirs(0, 1, 0).Value))) // version 0 again
		err := target.Write(t.Context(), registry.Change{Group: groupN(0), Delete: held[i : i+1]})
		if node, ok := server.Get(path); !errors.Is(err, registry.ErrConflict) || !ok || string(node.Data) != theirs(0, 1, 0).Value {
			t.Errorf("Write = %v, node %+v, want ErrConflict and the node of another", err, node)
		}
	})
}

func TestWrite_Limits(t *testing.T) {
	t.Parallel()
	const limit = 10_000
	server := serve(t)
	var last float64
	tg := target(t, dial(t, server), func(o *zookeeper.TargetOptions) {
		o.ChildrenLimit = limit
		o.Usage = func(share float64) { last = share }
	})
	err := tg.Write(t.Context(), creation(manyEntries(0, 0, 200)...))
	if !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "left out") {
		t.Fatalf("Write = %v, want a refusal", err)
	}
	names := server.Children(parentN(0))
	size := 88
	for _, n := range names {
		size += 4 + len(n)
	}
	if size > limit || size < limit*9/10 || last != float64(size)/limit {
		t.Errorf("size = %d of %d with %d names, Usage %v, want both within the limit and equal", size, limit, len(names), last)
	}
	t.Run("a full parent accepts replacements, and deletes nothing if it refuses a new entry", func(t *testing.T) {
		held := read(t, tg, groupN(0))
		old := held[0]
		i := slices.IndexFunc(manyEntries(0, 0, 200), func(e registry.Entry) bool { return e == old.Entry })
		change := creation(manyEntries(0, 300, 350)...)
		change.Delete = held[1:11]
		change.Put = append(change.Put, registry.Write{New: ours(0, i, 1), Old: &old})
		if err := tg.Write(t.Context(), change); !errors.Is(err, registry.ErrRefused) {
			t.Fatalf("Write = %v, want a refusal of the others", err)
		}
		after := read(t, tg, groupN(0))
		has := func(e registry.Entry) bool {
			return slices.ContainsFunc(after, func(h registry.Stored) bool { return h.Entry == e })
		}
		if !has(ours(0, i, 1)) || !has(held[1].Entry) || has(ours(0, 349, 0)) || last > 1 {
			t.Errorf("Read = %d entries, %d before, Usage %v, want the replacement, and no deletion with a refused entry", len(after), len(held), last)
		}
		change.Put, change.Want = nil, nil
		must(t, tg.Write(t.Context(), change))
		change = creation(manyEntries(0, 300, 350)...)
		if err := tg.Write(t.Context(), change); !errors.Is(err, registry.ErrRefused) {
			t.Fatalf("Write = %v, want a refusal of the others", err)
		}
		after = read(t, tg, groupN(0))
		if has(held[1].Entry) || !has(ours(0, 300, 0)) || last > 1 {
			t.Errorf("Read = %d entries, %d before, Usage %v, want the deletion and new entries within the limit", len(after), len(held), last)
		}
	})
	t.Run("many small writes without a reading are counted", func(t *testing.T) {
		tg := target(t, dial(t, server), func(o *zookeeper.TargetOptions) {
			o.ChildrenLimit = limit
			o.Usage = func(share float64) { last = share }
		})
		var err error
		wrote := 0
		for ; err == nil && wrote < 300; wrote++ {
			err = tg.Write(t.Context(), creation(ours(2, wrote, 0)))
		}
		if names := server.Children(parentN(2)); !errors.Is(err, registry.ErrRefused) || len(names) != wrote-1 || last < 0.95 {
			t.Errorf("Write = %v after %d, %d names, Usage %v, want a refusal of the last at a full parent", err, wrote, len(names), last)
		}
	})
	t.Run("a node that is too large affects only itself", func(t *testing.T) {
		large := ours(1, 0, 0)
		large.Value = large.Key + "|" + strings.Repeat("x", 1<<20) + "|" + metadata.NewMark(owner, "b").String()
		err := target(t, dial(t, server), withData).Write(t.Context(), creation(large, ours(1, 1, 0)))
		if !errors.Is(err, registry.ErrRefused) || len(server.Children(parentN(1))) != 1 {
			t.Errorf("Write = %.200v, nodes %q, want the large one refused and the other written", err, server.Children(parentN(1)))
		}
	})
}

func TestWrite_DeniedAccess(t *testing.T) {
	t.Parallel()
	server := serve(t)
	target := target(t, dial(t, server))
	for n := range 3 {
		write(t, target, creation(ours(n, 0, 0)))
	}
	must(t, server.SetACL(parentN(1), zkfake.DigestACL(zkfake.PermAll, "someone", "else")))
	groups, err := target.Groups(t.Context())
	must(t, err)
	if len(groups) != 3 {
		t.Errorf("Groups = %v, want 3 with the denied one", groups)
	}
	if held, err := target.Read(t.Context(), groupN(1)); !errors.Is(err, registry.ErrRefused) || held != nil {
		t.Errorf("Read of a denied group = %v, %v, want a refusal", held, err)
	}
	if err := target.Write(t.Context(), creation(ours(1, 1, 0))); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("Write to a denied group = %v, want a refusal", err)
	}
	write(t, target, creation(ours(2, 1, 0)))
	if held := read(t, target, groupN(2)); len(held) != 2 {
		t.Errorf("Read of another group = %v, want 2 entries", held)
	}
	must(t, server.SetACL(root, zkfake.DigestACL(zkfake.PermAll, "someone", "else")))
	if groups, err := target.Groups(t.Context()); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("Groups of a denied root = %v, %v, want a refusal", groups, err)
	}
}

// TestWrite_RefusedKeys shows that an entry is named if the server refuses an
// operation of it, and that the remaining change is written.
func TestWrite_RefusedKeys(t *testing.T) {
	t.Parallel()
	world := func(t *testing.T, tune ...func(*zookeeper.TargetOptions)) (*zkfake.Server, *zookeeper.Target, registry.Change) {
		t.Helper()
		server := serve(t)
		tg := target(t, dial(t, server), tune...)
		write(t, tg, creation(manyEntries(0, 0, 150)...))
		held := read(t, tg, groupN(0))
		change := creation(manyEntries(0, 200, 350)...)
		for i := range 50 {
			change.Put = append(change.Put, registry.Write{New: variant(held[i].Entry), Old: &held[i]})
		}
		change.Delete = held[50:100]
		return server, tg, change
	}
	refused := func(t *testing.T, tg *zookeeper.Target, change registry.Change, want int) registry.Refused {
		t.Helper()
		var r registry.Refused
		if err := tg.Write(t.Context(), change); !errors.As(err, &r) || len(r) != want {
			t.Fatalf("Write = %v, %d refused, want %d", err, len(r), want)
		}
		return r
	}
	t.Run("who may not delete still makes nodes", func(t *testing.T) {
		t.Parallel()
		server, tg, change := world(t)
		must(t, server.SetACL(parentN(0), zkfake.WorldACL(zkfake.PermRead|zkfake.PermCreate)))
		before := server.Count(zkfake.OpMulti)
		r := refused(t, tg, change, 100) // a replacement deletes the node before
		if names := server.Children(parentN(0)); r.Has(ours(0, 200, 0).Key) || len(names) != 300 {
			t.Errorf("nodes = %d, refused %v, want 300 with the new ones", len(names), r)
		}
		if n := server.Count(zkfake.OpMulti) - before; n > 6 {
			t.Errorf("transactions = %d, want 6 at most", n)
		}
	})
	t.Run("who may not make nodes deletes none with them", func(t *testing.T) {
		t.Parallel()
		server, tg, change := world(t)
		must(t, server.SetACL(parentN(0), zkfake.WorldACL(zkfake.PermRead|zkfake.PermDelete)))
		before := server.Count(zkfake.OpMulti)
		_ = refused(t, tg, change, 200)
		if names := server.Children(parentN(0)); len(names) != 150 {
			t.Errorf("nodes = %d, want 150", len(names))
		}
		if n := server.Count(zkfake.OpMulti) - before; n > 2 {
			t.Errorf("transactions = %d, want 2 at most", n)
		}
	})
	t.Run("a node whose ACL denies the write affects only itself", func(t *testing.T) {
		t.Parallel()
		server, tg, change := world(t, withData)
		for i := range 20 { // more often than a transaction is built again for other reasons
			path, _ := pathOf(t, layout{data: true}, change.Put[150+i].New)
			must(t, server.SetACL(path, zkfake.WorldACL(zkfake.PermRead)))
		}
		r := refused(t, tg, change, 20)
		held := read(t, tg, groupN(0))
		for _, w := range change.Put {
			if wrote := slices.ContainsFunc(held, func(h registry.Stored) bool { return h.Entry == w.New }); wrote == r.Has(w.New.Key) {
				t.Errorf("%s: refused %v, written %v, want one of them", w.New.Key, r.Has(w.New.Key), wrote)
			}
		}
		if len(held) != 250 {
			t.Errorf("Read = %d entries, want 250", len(held))
		}
	})
}

// variant is an entry with another value.
func variant(e registry.Entry) registry.Entry {
	e.Value = strings.Replace(e.Value, "|v0|", "|v1|", 1)
	return e
}

func TestWrite_HostileNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"..", "a/b", "a\x00b", "\x1b[31m", "\u202e", "😀", "\ue000", "\xff"} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			t.Parallel()
			server := serve(t)
			target := target(t, dial(t, server), func(o *zookeeper.TargetOptions) { o.Layouts = []zookeeper.Layout{rawLayout{}} })
			e := ours(0, 0, 0)
			e.Value = name
			err := target.Write(t.Context(), creation(e, ours(0, 1, 0)))
			names := server.Children(parentN(0))
			if name == "\u202e" { // a server accepts it
				if err != nil || len(names) != 2 {
					t.Errorf("Write = %v, nodes %q, want no error and 2 nodes", err, names)
				}
				return
			}
			if !errors.Is(err, registry.ErrRefused) || len(names) != 1 {
				t.Errorf("Write = %v, nodes %q, want a refusal and 1 node", err, names)
			}
			if strings.ContainsAny(err.Error(), "\x00\x1b\n") {
				t.Errorf("Write = %q, want no control characters in it", err)
			}
		})
	}
}

// rawLayout names nodes without any escaping.
type rawLayout struct{ layout }

func (rawLayout) Node(e registry.Entry) (string, []byte, error) {
	return strings.ReplaceAll(strings.TrimPrefix(e.Value, "tri://"), "|", "-"), nil, nil
}
