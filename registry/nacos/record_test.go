package nacos_test

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

var _ registry.Recorder = (*nacos.Target)(nil)

func TestRecords(t *testing.T) {
	bubble(t, "what several keep at the same time is all kept, and outlives their connections", func(t *testing.T) {
		server := nacosfake.NewServer()
		a := start(t, server, nil)
		beside := func() *rig {
			b := &rig{server: server, rpc: a.rpc, web: a.web}
			b.client, b.target, b.stop = a.connect(t, nil)
			return b
		}
		b := beside()
		var both sync.WaitGroup
		for n, r := range []*rig{a, b, a, b} {
			both.Go(func() {
				if err := r.target.Record(t.Context(), "decisions", fmt.Sprint("h", n), fmt.Sprint("word ", n)); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if err := b.target.Record(t.Context(), "decisions", "h0", ""); err != nil {
			t.Error(err)
		}
		want := map[string]string{"h1": "word 1", "h2": "word 2", "h3": "word 3"}
		for name, r := range map[string]*rig{"who wrote": a, "who comes later": beside()} {
			if got, err := r.target.Records(t.Context(), "decisions"); err != nil || !maps.Equal(got, want) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
		if got, err := a.target.Records(t.Context(), "holds"); err != nil || len(got) > 0 {
			t.Errorf("another kind: %v, %v", got, err)
		}
	})
	bubble(t, "what another tool wrote there is an error and stays", func(t *testing.T) {
		server := nacosfake.NewServer()
		r := start(t, server, nil)
		at := nacosfake.Config{Group: "xds-bridge", DataID: "xds-bridge." + mine.Owner + ".decisions"}
		server.SetConfig(at, "key=value")
		if _, err := r.target.Records(t.Context(), "decisions"); !errors.Is(err, registry.ErrRefused) {
			t.Error(err)
		}
		if err := r.target.Record(t.Context(), "decisions", "h", "word"); !errors.Is(err, registry.ErrRefused) || server.Config(at) != "key=value" {
			t.Errorf("%v, %q", err, server.Config(at))
		}
	})
	bubble(t, "who may not write configurations is told", func(t *testing.T) {
		server := nacosfake.NewServer()
		r := start(t, server, nil)
		server.Fail(func(q nacosfake.Request) (int, string) {
			if q.Type == "ConfigPublishRequest" {
				return 403, "no right"
			}
			return 0, ""
		})
		if err := r.target.Record(t.Context(), "decisions", "h", "word"); !errors.Is(err, registry.ErrRefused) {
			t.Error(err)
		}
		if err := r.target.TryRecord(t.Context()); !errors.Is(err, registry.ErrRefused) {
			t.Error(err)
		}
		server.Fail(nil)
		at := nacosfake.Config{Group: "xds-bridge", DataID: "xds-bridge." + mine.Owner + ".preflight"}
		if err := r.target.TryRecord(t.Context()); err != nil || server.Config(at) != "" {
			t.Errorf("%v; left is %q", err, server.Config(at))
		}
	})
}
