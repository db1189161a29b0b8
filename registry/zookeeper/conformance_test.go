package zookeeper_test

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

func TestTarget_Conformance(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		layout   layout
		lifetime zookeeper.Lifetime
	}{
		"names, persistent": {layout{}, zookeeper.Persistent},
		"data, persistent":  {layout{data: true}, zookeeper.Persistent},
		"names, session":    {layout{}, zookeeper.Session},
		"data, session":     {layout{data: true}, zookeeper.Session},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Target(t, func(t *testing.T) conformance.Fixture {
				t.Helper()
				return fixture(t, tt.layout, tt.lifetime)
			})
		})
	}
}

func TestTarget_WatchedConformance(t *testing.T) {
	t.Parallel()
	conformance.Watched(t, func(t *testing.T) conformance.WatchedFixture {
		t.Helper()
		server := serve(t)
		client := dial(t, server)
		entries := []registry.Entry{ours(0, 0, 0), ours(0, 1, 0)}
		return conformance.WatchedFixture{Target: target(t, client), Entries: entries, Disturb: func(t *testing.T) {
			t.Helper()
			path, _ := pathOf(t, layout{}, entries[0])
			server.Delete(path)
		}}
	})
}

func fixture(t *testing.T, l layout, lifetime zookeeper.Lifetime) conformance.Fixture {
	t.Helper()
	server := serve(t)
	client := dial(t, server)
	set := func(t *testing.T, e registry.Entry) {
		t.Helper()
		path, data := pathOf(t, l, e)
		if lifetime == zookeeper.Session {
			must(t, server.PutEphemeral(path, data, client.State().Session))
		} else {
			must(t, server.Put(path, data))
		}
	}
	return conformance.Fixture{
		Target: target(t, client, func(o *zookeeper.TargetOptions) {
			o.Layouts, o.Lifetime = []zookeeper.Layout{l}, lifetime
		}),
		Owner: metadata.NewMark(owner, "").Owner,
		Group: groupN, Entry: ours, Foreign: theirs,
		Hostile: func(text string) registry.Entry {
			e := ours(0, 0, 0)
			e.Key += text
			e.Value = e.Key + "|" + text + "|" + metadata.NewMark(owner, "b").String()
			return e
		},
		Set: set,
		Drop: func(t *testing.T, e registry.Entry) {
			t.Helper()
			path, _ := pathOf(t, l, e)
			server.Delete(path)
		},
	}
}
