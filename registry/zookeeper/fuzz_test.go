package zookeeper_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// FuzzTarget_F54 writes an entry whose node is named by arbitrary text, with
// and without escaping: it is read back as it was, or refused, and nothing
// else is ever written.
func FuzzTarget_F54(f *testing.F) {
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
		err := target.Write(t.Context(), creating(e))
		names := server.Children(folderN(0))
		switch {
		case errors.Is(err, registry.ErrRefused):
			if escaped || len(names) != 0 {
				t.Fatalf("%v, but %q", err, names)
			}
		case err != nil:
			t.Fatal(err)
		default:
			held := read(t, target, groupN(0))
			if len(held) != 1 || held[0].Entry != e {
				t.Fatalf("%v, want %v", held, e)
			}
			write(t, target, registry.Change{Group: groupN(0), Delete: held})
		}
		for _, p := range server.Paths("/") {
			if p != root && p != root+"/api.Group0" && p != folderN(0) && strings.Count(p, "/") > 3 {
				t.Errorf("%q is left", p)
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
