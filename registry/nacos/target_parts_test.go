package nacos_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

var _ nacos.HasDependencies = (*dubbo.NacosApp)(nil)

// applications is Dubbo's application-level format in the group of Nacos that
// everybody uses.
type applications struct{ *dubbo.NacosApp }

func (applications) Scopes() []registry.Group {
	return []registry.Group{{Kind: dubbo.KindApplication, Group: "DEFAULT_GROUP"}}
}

func newApplications(t *testing.T) applications {
	t.Helper()
	n, err := dubbo.NewNacosApp(dubbo.Options{Mark: mine})
	if err != nil {
		t.Fatal(err)
	}
	return applications{n}
}

// shop is an application with an interface.
func shop(t *testing.T, more ...registry.Interface) []registry.Entry {
	t.Helper()
	entries, err := newApplications(t).Encode(&registry.Service{
		Name: "shop.ns.svc.cluster.local:1", Interfaces: append([]registry.Interface{{Name: "api.A"}}, more...),
		Endpoints: []registry.Endpoint{{Host: "10.0.0.1", Port: 1, Weight: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func appTarget(t *testing.T, r *rig) *nacos.Target {
	t.Helper()
	target, err := nacos.NewTarget(r.client, nacos.TargetOptions{Owner: mine.Owner, Layouts: []nacos.Layout{newApplications(t)}})
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func entriesOf(t *testing.T, target *nacos.Target, g registry.Group) []registry.Stored {
	t.Helper()
	held, err := target.Read(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func TestTarget_Application(t *testing.T) {
	mapping := nacosfake.Config{Group: "mapping", DataID: "api.A"}
	bubble(t, "written documents are read, and elements of others stay", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		target := appTarget(t, r)
		r.server.SetConfig(mapping, "other")
		want := shop(t)
		g := want[0].Group
		if err := target.Write(t.Context(), change(g, want...)); err != nil {
			t.Fatal(err)
		}
		var got []registry.Entry
		held := entriesOf(t, target, g)
		for _, h := range held {
			if got = append(got, h.Entry); h.Owner != mine.Owner || !h.Live {
				t.Errorf("held %+v, want it ours and live", h)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("read\n%v\nwant\n%v", got, want)
		}
		if text := r.server.Config(mapping); text != "other,shop" {
			t.Errorf("mapping %q, want other,shop", text)
		}
		revision, _ := strings.CutPrefix(want[1].Key, "#metadata/")
		document := nacosfake.Config{Group: revision, DataID: "shop"}
		if r.server.Config(document) != want[1].Value {
			t.Errorf("document %q, want %q", r.server.Config(document), want[1].Value)
		}
		if err := target.Write(t.Context(), registry.Change{Group: g, Delete: held}); err != nil {
			t.Fatal(err)
		}
		if left := entriesOf(t, target, g); len(left) != 0 || r.server.Config(document) != "" || r.server.Config(mapping) != "other,shop" {
			t.Errorf("entries %v, document %q, mapping %q, want neither of the first two and other,shop", left, r.server.Config(document), r.server.Config(mapping))
		}
	})
	bubble(t, "a mapping that another changes meanwhile is a conflict, and nothing of his is lost", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		target := appTarget(t, r)
		r.server.SetConfig(mapping, "other")
		var once sync.Once
		r.server.Fail(func(q nacosfake.Request) (int, string) {
			if q.Type == "ConfigPublishRequest" && strings.Contains(string(q.Body), `"mapping"`) {
				once.Do(func() { r.server.SetConfig(mapping, "other,third") })
			}
			return 0, ""
		})
		want := shop(t)
		if err := target.Write(t.Context(), change(want[0].Group, want...)); !errors.Is(err, registry.ErrConflict) {
			t.Errorf("error %v, want a conflict", err)
		}
		if err := target.Write(t.Context(), change(want[0].Group, want...)); err != nil {
			t.Fatal(err)
		}
		if text := r.server.Config(mapping); text != "other,third,shop" {
			t.Errorf("mapping %q, want other,third,shop", text)
		}
	})
}

// TestTarget_RecognisesItsParts: which documents are ours is kept before they are
// written and until they are removed, whatever fails in between.
func TestTarget_RecognisesItsParts(t *testing.T) {
	documents := func(t *testing.T, target *nacos.Target, g registry.Group) []string {
		t.Helper()
		var keys []string
		for _, h := range entriesOf(t, target, g) {
			if strings.HasPrefix(h.Key, "#metadata/") && h.Owner == mine.Owner {
				keys = append(keys, h.Key)
			}
		}
		return keys
	}
	docOf := func(entries []registry.Entry) string {
		i := slices.IndexFunc(entries, func(e registry.Entry) bool { return strings.HasPrefix(e.Key, "#metadata/") })
		return entries[i].Key
	}
	bubble(t, "the old revision is ours still where the instances of the new one are not accepted", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		target := appTarget(t, r)
		first, second := shop(t), shop(t, registry.Interface{Name: "api.B"})
		g := first[0].Group
		if err := target.Write(t.Context(), change(g, first...)); err != nil {
			t.Fatal(err)
		}
		next := change(g, second...)
		for _, h := range entriesOf(t, target, g) {
			if h.Key == docOf(first) {
				next.Delete = append(next.Delete, h)
			}
		}
		r.server.Fail(refuse("BatchInstanceRequest", "shop", 500))
		if err := target.Write(t.Context(), next); err == nil || len(next.Delete) != 1 {
			t.Fatalf("%v, deleting %v; want a failure after the documents", err, next.Delete)
		}
		want := []string{docOf(first), docOf(second)}
		if slices.Sort(want); !slices.Equal(documents(t, target, g), want) {
			t.Errorf("our documents %q, want %q", documents(t, target, g), want)
		}
		r.server.Fail(nil)
		if err := target.Write(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		if got := documents(t, target, g); !slices.Equal(got, []string{docOf(second)}) {
			t.Errorf("our documents %q, want %q", got, docOf(second))
		}
	})
	bubble(t, "a document whose confirmation is lost is ours", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		target := appTarget(t, r)
		want := shop(t)
		r.server.Lose(func(q nacosfake.Request) bool {
			return q.Type == "ConfigPublishRequest" && strings.Contains(string(q.Body), "revision") // the document
		})
		if err := target.Write(t.Context(), change(want[0].Group, want...)); err == nil {
			t.Fatal("Write() = nil, want the error of a confirmation that was lost")
		}
		r.server.Lose(nil)
		if got := documents(t, target, want[0].Group); !slices.Equal(got, []string{docOf(want)}) {
			t.Errorf("our documents %q, want %q", got, docOf(want))
		}
	})
}

// TestTarget_NamesARefusedPart: the instances are still published, and
// a document that may not be removed stays known as ours.
func TestTarget_NamesARefusedPart(t *testing.T) {
	bubble(t, "a document", func(t *testing.T) {
		r := start(t, nacosfake.NewServer(), nil)
		target, want := appTarget(t, r), shop(t)
		g, doc := want[0].Group, want[1].Key
		wantRefused := func(err error) {
			t.Helper()
			var refused registry.Refused
			if !errors.As(err, &refused) || len(refused) != 1 || !refused.Has(doc) {
				t.Fatalf("%v, want only %s refused", err, doc)
			}
		}
		r.server.Fail(refuse("ConfigPublishRequest", "revision", 403)) // the document
		wantRefused(target.Write(t.Context(), change(g, want...)))
		held := entriesOf(t, target, g)
		if len(held) == 0 || slices.ContainsFunc(held, func(h registry.Stored) bool { return h.Key == doc }) {
			t.Errorf("held %v, want entries without %s", held, doc)
		}
		r.server.Fail(nil)
		if err := target.Write(t.Context(), change(g, want...)); err != nil {
			t.Fatal(err)
		}
		r.server.Fail(refuse("ConfigRemoveRequest", "shop", 403))
		wantRefused(target.Write(t.Context(), registry.Change{Group: g, Delete: entriesOf(t, target, g)}))
		if held := entriesOf(t, target, g); len(held) != 1 && (len(held) != 2 || held[0].Key != doc && held[1].Key != doc) {
			t.Errorf("held %v, want the mapping and perhaps %s", held, doc)
		}
	})
}
