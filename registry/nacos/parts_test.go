package nacos_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/nacos/nacostest"
)

var _ nacos.Needy = (*dubbo.NacosApp)(nil)

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
func shop(t *testing.T, weight uint32) []registry.Entry {
	t.Helper()
	entries, err := newApplications(t).Encode(&registry.Service{
		Name: "shop.ns.svc.cluster.local:1", Interfaces: []registry.Interface{{Name: "api.A"}},
		Endpoints: []registry.Endpoint{{Host: "10.0.0.1", Port: 1, Weight: weight}},
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

func entriesOf(t *testing.T, target *nacos.Target, g registry.Group) []registry.Held {
	t.Helper()
	held, err := target.Read(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func TestAnApplicationInNacos(t *testing.T) {
	mapping := nacostest.Config{Group: "mapping", DataID: "api.A"}
	bubble(t, "what is written is what is read, and words of others stay", func(t *testing.T) {
		r := start(t, nacostest.NewServer(), nil)
		target := appTarget(t, r)
		r.server.SetConfig(mapping, "other")
		want := shop(t, 1)
		g := want[0].Group
		if err := target.Write(t.Context(), change(g, want...)); err != nil {
			t.Fatal(err)
		}
		var got []registry.Entry
		held := entriesOf(t, target, g)
		for _, h := range held {
			if got = append(got, h.Entry); h.Owner != mine.Owner || !h.Live {
				t.Errorf("not ours or not live: %+v", h)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("read\n%v\nwant\n%v", got, want)
		}
		if text := r.server.Config(mapping); text != "other,shop" {
			t.Errorf("mapping %q", text)
		}
		revision, _ := strings.CutPrefix(want[1].Key, "#metadata/")
		document := nacostest.Config{Group: revision, DataID: "shop"}
		if r.server.Config(document) != want[1].Value {
			t.Errorf("document %q", r.server.Config(document))
		}
		if err := target.Write(t.Context(), registry.Change{Group: g, Delete: held}); err != nil {
			t.Fatal(err)
		}
		if left := entriesOf(t, target, g); len(left) != 0 || r.server.Config(document) != "" || r.server.Config(mapping) != "other,shop" {
			t.Errorf("left %v, mapping %q", left, r.server.Config(mapping))
		}
	})
	bubble(t, "a mapping that another changes meanwhile is a conflict, and nothing of his is lost", func(t *testing.T) {
		r := start(t, nacostest.NewServer(), nil)
		target := appTarget(t, r)
		r.server.SetConfig(mapping, "other")
		var once sync.Once
		r.server.Fail(func(q nacostest.Request) (int, string) {
			if q.Type == "ConfigPublishRequest" && strings.Contains(string(q.Body), `"mapping"`) {
				once.Do(func() { r.server.SetConfig(mapping, "other,third") })
			}
			return 0, ""
		})
		want := shop(t, 1)
		if err := target.Write(t.Context(), change(want[0].Group, want...)); !errors.Is(err, registry.ErrConflict) {
			t.Errorf("error %v, want a conflict", err)
		}
		if err := target.Write(t.Context(), change(want[0].Group, want...)); err != nil {
			t.Fatal(err)
		}
		if text := r.server.Config(mapping); text != "other,third,shop" {
			t.Errorf("mapping %q", text)
		}
	})
}
