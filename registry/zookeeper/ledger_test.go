package zookeeper_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// codec is Dubbo's own format, whose values are URLs.
func codec(t testing.TB) *dubbo.ZooKeeper {
	t.Helper()
	c, err := dubbo.NewZooKeeper(dubbo.Options{Mark: metadata.NewMark(owner, "b")})
	must(t, err)
	return c
}

// greeter returns the entries of a service of n endpoints.
func greeter(t testing.TB, n int) []registry.Entry {
	t.Helper()
	s := &registry.Service{Name: "greet", Interfaces: []registry.Interface{{Name: "api.Greeter"}}}
	for i := range n {
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: "10.0.0." + string(rune('1'+i)), Port: 20000, Health: registry.Healthy})
	}
	entries, err := codec(t).Encode(s)
	must(t, err)
	return entries
}

// removeMark removes the mark of an entry as another tool would: it stores the
// URL anew without what it does not know.
func removeMark(t testing.TB, server *zkfake.Server, e registry.Entry) {
	t.Helper()
	marked, _ := pathOf(t, codec(t), e)
	bare, _ := pathOf(t, codec(t), metadata.Bare(e))
	server.Delete(marked)
	must(t, server.PutEphemeral(bare, nil, 0))
}

func withDubbo(t testing.TB, signer *metadata.Signer) func(*zookeeper.TargetOptions) {
	t.Helper()
	return func(o *zookeeper.TargetOptions) {
		o.Layouts, o.Signer = []zookeeper.Layout{codec(t)}, signer
	}
}

// planned returns what a planner that wants entries would do about a group.
func planned(held []registry.Stored, want []registry.Entry) (registry.Change, []plan.Conflict) {
	p := plan.New(metadata.NewMark(owner, "").Owner)
	p.Claim(plan.Origin{Service: "greet"}, plan.Withdrawn, want)
	p.Observe(want[0].Group, held)
	return p.Change(want[0].Group)
}

func TestLedger_MissingMark(t *testing.T) {
	t.Parallel()
	server, entries := serve(t), greeter(t, 3)
	write(t, target(t, dial(t, server), withDubbo(t, nil)), creation(entries...))
	removeMark(t, server, entries[1])

	again := target(t, dial(t, server), withDubbo(t, nil)) // a new process
	held := read(t, again, entries[0].Group)
	change, conflicts := planned(held, entries)
	if len(conflicts) > 0 || len(change.Put) != 1 || change.Put[0].Old == nil || len(change.Delete) > 0 {
		t.Fatalf("difference = %+v, %v, want one replacement and no conflict", change, conflicts)
	}
	write(t, again, change)
	if held := read(t, again, entries[0].Group); len(held) != 3 || held[1].Entry != entries[1] {
		t.Errorf("Read after the repair = %v, want 3 entries", held)
	}

	removeMark(t, server, entries[2]) // and once the service is gone
	held = read(t, again, entries[0].Group)
	if change, _ := planned(held, entries[:2]); len(change.Delete) != 1 || change.Delete[0].Key != entries[2].Key {
		t.Errorf("difference = %+v, want the deletion of %s", change, entries[2].Key)
	}
}

func TestLedger_AddsToMarks(t *testing.T) {
	t.Parallel()
	ledgerOf := func(s *zkfake.Server) string {
		return "/xds-bridge/" + owner + "/ledger/" + s.Children("/xds-bridge/" + owner + "/ledger")[0]
	}
	for name, tt := range map[string]struct {
		signed bool
		act    func(t *testing.T, s *zkfake.Server, e registry.Entry)
	}{
		"it is missing": {act: func(_ *testing.T, s *zkfake.Server, _ registry.Entry) { s.Delete("/xds-bridge") }},
		"it is damaged": {act: func(t *testing.T, s *zkfake.Server, _ registry.Entry) {
			must(t, s.Put(ledgerOf(s), []byte("not what it was, and of no length that it could be")))
		}},
		"it is cut short": {act: func(t *testing.T, s *zkfake.Server, _ registry.Entry) {
			must(t, s.Put(ledgerOf(s), []byte{1, 2, 3}))
		}},
		"the entry has another value": {act: func(t *testing.T, s *zkfake.Server, e registry.Entry) {
			path, _ := pathOf(t, codec(t), metadata.Bare(e))
			s.Delete(path)
			must(t, s.Put(path+"%26weight%3D7", nil))
		}},
		"a provider holds the entry itself": {act: func(t *testing.T, s *zkfake.Server, e registry.Entry) {
			provider := dial(t, s)
			if _, err := target(t, provider).Check(t.Context()); err != nil { // so that it has a session
				t.Fatal(err)
			}
			path, _ := pathOf(t, codec(t), metadata.Bare(e))
			s.Delete(path)
			must(t, s.PutEphemeral(path, nil, provider.State().Session))
		}},
		"it was made without the key": {signed: true, act: func(t *testing.T, s *zkfake.Server, e registry.Entry) {
			tag := (*metadata.Signer)(nil).Tags(e)[0]
			must(t, s.Put(ledgerOf(s), tag[:]))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var signer *metadata.Signer
			entries := greeter(t, 2)
			if tt.signed {
				signer = metadata.NewSigner([]byte("a key"))
				for i := range entries {
					entries[i] = signer.Sign(entries[i])
				}
			}
			server := serve(t)
			write(t, target(t, dial(t, server), withDubbo(t, signer)), creation(entries...))
			removeMark(t, server, entries[0])
			tt.act(t, server, entries[0])
			again := target(t, dial(t, server), withDubbo(t, signer))
			held := read(t, again, entries[0].Group)
			i := slices.IndexFunc(held, func(h registry.Stored) bool { return strings.Contains(h.Value, "10.0.0.1") })
			if len(held) != 2 || held[i].Owner != "" || held[1-i].Entry != entries[1] {
				t.Fatalf("Read = %+v, want one entry without an owner, and %v", held, entries[1])
			}
			if change, _ := planned(held, entries[1:]); !change.Empty() {
				t.Errorf("difference = %+v, want none", change)
			}
		})
	}
}

func TestLedger_GoesWithTheLastEntry(t *testing.T) {
	t.Parallel()
	server, entries := serve(t), greeter(t, 2)
	tg := target(t, dial(t, server), withDubbo(t, nil))
	write(t, tg, creation(entries...))
	parent := "/xds-bridge/" + owner + "/ledger"
	if names := server.Children(parent); len(names) != 1 {
		t.Fatalf("ledger = %q, want one node", names)
	}
	for range 2 { // by who wrote it, and by a process that did not
		write(t, tg, registry.Change{Group: entries[0].Group, Delete: read(t, tg, entries[0].Group)})
		if names := server.Children(parent); len(names) != 0 {
			t.Errorf("ledger after the deletion = %q, want none", names)
		}
		tg = target(t, dial(t, server), withDubbo(t, nil))
		write(t, tg, creation(entries...))
	}
}

func TestLedger_Unwritable(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"the parent of homes": "/xds-bridge", "below it": "/xds-bridge/" + owner} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, entries := serve(t), greeter(t, 2)
			must(t, server.Put(path, nil))
			must(t, server.SetACL(path, zkfake.DigestACL(zkfake.PermAll, "someone", "else")))
			tg := target(t, dial(t, server), withDubbo(t, nil))
			write(t, tg, creation(entries...))
			if held := read(t, tg, entries[0].Group); len(held) != 2 {
				t.Errorf("Read = %v, want 2 entries", held)
			}
		})
	}
}

func TestLedger_UnsignedEntry(t *testing.T) {
	t.Parallel()
	server, entries := serve(t), greeter(t, 2)
	write(t, target(t, dial(t, server), withDubbo(t, nil)), creation(entries...))
	signer := metadata.NewSigner([]byte("a key"))
	tg := target(t, dial(t, server), withDubbo(t, signer))
	held := read(t, tg, entries[0].Group)
	for _, h := range held {
		if !strings.Contains(h.Owner, "not signed") {
			t.Errorf("owner = %q, want one that is not signed", h.Owner)
		}
	}
	if change, conflicts := planned(held, []registry.Entry{signer.Sign(entries[0])}); !change.Empty() || len(conflicts) != 1 {
		t.Errorf("difference = %+v, %v, want one conflict", change, conflicts)
	}
	if err := tg.Write(t.Context(), registry.Change{Group: entries[0].Group, Delete: held}); err == nil {
		t.Error("Write of the deletion of a forged entry: got no error, want one")
	}
}
