package zookeeper_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// FuzzTarget writes an entry whose node is named by arbitrary text, with
// and without escaping: it is read back as it was, or refused, and nothing
// else is ever written.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"", "a", "../../x", "%2F", "a\x00b", "\r\n", "\x1b[31m", "\u202e", "😀", "\ue000", "\xff", "a/b", "."} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, text string, escaped bool) {
		if strings.Contains(text, "|") || len(text) > 1<<10 {
			return
		}
		server := serve(t)
		target := target(t, dial(t, server), func(o *zookeeper.TargetOptions) {
			if !escaped {
				o.Layouts = []zookeeper.Layout{plainLayout{}}
			}
		})
		e := registry.Entry{Group: groupN(0), Key: "k" + text}
		e.Value = e.Key + "|v|" + metadata.NewMark(owner, "b").String()
		err := target.Write(t.Context(), creation(e))
		names := server.Children(parentN(0))
		switch {
		case errors.Is(err, registry.ErrRefused):
			if escaped || len(names) != 0 {
				t.Fatalf("Write = %v with nodes %q, want a refusal without nodes", err, names)
			}
		case err != nil:
			t.Fatal(err)
		default:
			held := read(t, target, groupN(0))
			if len(held) != 1 || held[0].Entry != e {
				t.Fatalf("Read = %v, want %v", held, e)
			}
			write(t, target, registry.Change{Group: groupN(0), Delete: held})
		}
		for _, p := range server.Paths("/") {
			if p != root && p != root+"/api.Group0" && p != parentN(0) && strings.Count(p, "/") > 3 {
				t.Errorf("path %q, want none but those of the group", p)
			}
		}
	})
}

// plainLayout names nodes by their values without escaping.
type plainLayout struct{ layout }

func (plainLayout) Node(e registry.Entry) (string, []byte, error) { return e.Value, nil, nil }

func (plainLayout) Entry(g registry.Group, name string, _ []byte) (registry.Entry, metadata.Mark) {
	parts := strings.Split(name, "|")
	mark, _ := metadata.ParseMark(parts[len(parts)-1])
	return registry.Entry{Group: g, Key: parts[0], Value: name}, mark
}

// FuzzHome has others write into the nodes that an owner keeps for itself: their
// content makes no entry of theirs ours, and at most refuses something.
func FuzzHome(f *testing.F) {
	f.Add([]byte(`{"host":"a","process":-1,"timeout":-9000000000000000000}`))
	f.Add([]byte("b\n../../x\n"))
	f.Add([]byte("9223372036854775807 another"))
	f.Add([]byte("not what it was, and of no length that it could be"))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<12 {
			return
		}
		server := serve(t)
		client := dial(t, server)
		fenced := func(o *zookeeper.TargetOptions) {
			o.Bridges = []string{"b"}
			o.Fence = func() (zookeeper.Fence, bool) { return zookeeper.Fence{Term: 5, Holder: "me"}, true }
		}
		first, bare := target(t, client, withDubbo(t, nil)), greeter(t, 2)
		write(t, first, creation(bare[0]))
		path, _ := pathOf(t, codec(t), metadata.Bare(bare[1]))
		must(t, server.Put(path, nil))
		for _, p := range server.Paths("/xds-bridge/" + owner) {
			if strings.Contains(p, "/ledger/") {
				must(t, server.Put(p, data))
			}
		}
		for _, p := range []string{"/xds-bridge/" + owner + "/bridges", "/xds-bridge/" + owner + "/fence", "/xds-bridge/id", "/xds-bridge/other/bridges"} {
			must(t, server.Put(p, data))
		}
		tg := target(t, client, withDubbo(t, nil), fenced)
		if err := tg.Admit(t.Context()); err != nil && !errors.Is(err, zookeeper.ErrOwner) {
			t.Fatal(err)
		}
		held, err := tg.Read(t.Context(), bare[0].Group)
		if err != nil && !errors.Is(err, registry.ErrRefused) && !errors.Is(err, registry.ErrFenced) {
			t.Fatal(err)
		}
		for _, h := range held {
			if h.Owner != "" && h.Key == bare[1].Key {
				t.Errorf("ledger %q: %v is owned by %q, want no owner", data, h.Key, h.Owner)
			}
		}
	})
}
