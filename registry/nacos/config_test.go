package nacos_test

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

var idConfig = nacosfake.Config{Group: nacos.IDGroup, DataID: nacos.IDData}

func TestClient_ID(t *testing.T) {
	t.Parallel()
	t.Run("it is written once, and kept", func(t *testing.T) {
		t.Parallel()
		r := start(t, nacosfake.NewServer(), nil)
		for _, tt := range []struct{ offer, want string }{{"", ""}, {"first", "first"}, {"second", "first"}, {"", "first"}} {
			if got, err := r.client.ID(t.Context(), tt.offer); got != tt.want || err != nil {
				t.Errorf("ID(%q) = %q, %v, want %q", tt.offer, got, err, tt.want)
			}
		}
	})
	t.Run("each namespace has its own, and public has one however it is named", func(t *testing.T) {
		t.Parallel()
		r := start(t, nacosfake.NewServer(), nil)
		for _, tt := range []struct{ namespace, offer, want string }{{"", "a", "a"}, {"public", "b", "a"}, {"theirs", "c", "c"}} {
			client, _, _ := r.connect(t, func(o *nacos.Options) { o.Namespace = tt.namespace })
			if got, err := client.ID(t.Context(), tt.offer); got != tt.want || err != nil {
				t.Errorf("ID() of namespace %q = %q, %v, want %q", tt.namespace, got, err, tt.want)
			}
		}
	})
	t.Run("of two that come first at the same time one wins", func(t *testing.T) {
		t.Parallel()
		server := nacosfake.NewServer()
		r := start(t, server, nil)
		var once sync.Once
		server.Fail(func(q nacosfake.Request) (int, string) {
			if q.Type == "ConfigPublishRequest" {
				once.Do(func() { server.SetConfig(idConfig, "theirs") })
			}
			return 0, ""
		})
		if got, err := r.client.ID(t.Context(), "ours"); got != "theirs" || err != nil || server.Config(idConfig) != "theirs" {
			t.Errorf("ID() = %q, %v, want theirs", got, err)
		}
	})
	t.Run("one that is just being written is waited for", func(t *testing.T) {
		t.Parallel()
		server := nacosfake.NewServer()
		r := start(t, server, nil)
		server.SetConfig(idConfig, "theirs")
		var asked atomic.Int32
		server.Fail(func(q nacosfake.Request) (int, string) {
			if q.Type == "ConfigQueryRequest" && asked.Add(1) <= 3 {
				return 400, "requested file is being modified, please try later."
			}
			return 0, ""
		})
		if got, err := r.client.ID(t.Context(), "ours"); got != "theirs" || err != nil || len(server.Requests("ConfigPublishRequest")) > 0 {
			t.Errorf("ID() = %q, %v, want theirs without a write", got, err)
		}
	})
	for name, tt := range map[string]struct {
		op      string
		code    int
		refused bool
	}{
		"may not be read":                       {"ConfigQueryRequest", 403, true},
		"may not be made":                       {"ConfigPublishRequest", 403, true},
		"is of a server without configurations": {"ConfigQueryRequest", 302, true},
		"is asked for too often":                {"ConfigQueryRequest", 503, false},
	} {
		t.Run("one that "+name, func(t *testing.T) {
			t.Parallel()
			server := nacosfake.NewServer()
			r := start(t, server, nil)
			server.Fail(func(q nacosfake.Request) (int, string) {
				if q.Type == tt.op {
					return tt.code, "answer " + strconv.Itoa(tt.code)
				}
				return 0, ""
			})
			got, err := r.client.ID(t.Context(), "ours")
			if got != "" || errors.Is(err, registry.ErrRefused) != tt.refused || !strings.Contains(err.Error(), nacos.IDData) {
				t.Errorf("ID() = %q, %v, want an error that names %s", got, err, nacos.IDData)
			}
		})
	}
}

var _ registry.Recorder = (*nacos.Target)(nil)

func TestTarget_Records(t *testing.T) {
	bubble(t, "what several keep at the same time is all kept, and outlives their connections", func(t *testing.T) {
		server := nacosfake.NewServer()
		a := start(t, server, nil)
		another := func() *rig {
			b := &rig{server: server, rpc: a.rpc, web: a.web}
			b.client, b.target, b.stop = a.connect(t, nil)
			return b
		}
		b := another()
		var both sync.WaitGroup
		for n, r := range []*rig{a, b, a, b} {
			both.Go(func() {
				if err := r.target.Record(t.Context(), "decisions", map[string]string{fmt.Sprint("h", n): fmt.Sprint("text ", n)}); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if err := b.target.Record(t.Context(), "decisions", map[string]string{"h0": ""}); err != nil {
			t.Error(err)
		}
		want := map[string]string{"h1": "text 1", "h2": "text 2", "h3": "text 3"}
		for name, r := range map[string]*rig{"the writer": a, "a later process": another()} {
			if got, err := r.target.Records(t.Context(), "decisions"); err != nil || !maps.Equal(got, want) {
				t.Errorf("Records() of %s = %v, %v, want %v", name, got, err, want)
			}
		}
		if got, err := a.target.Records(t.Context(), "holds"); err != nil || len(got) > 0 {
			t.Errorf("Records() of another kind = %v, %v, want none", got, err)
		}
	})
	bubble(t, "all texts of a call are one write", func(t *testing.T) {
		server := nacosfake.NewServer()
		r := start(t, server, nil)
		texts := map[string]string{"small": "text"}
		for n := range 64 {
			texts[fmt.Sprint("h", n)] = fmt.Sprint("text ", n)
		}
		if err := r.target.Record(t.Context(), "guard", texts); err != nil || len(server.Requests("ConfigPublishRequest")) != 1 {
			t.Errorf("Record() = %v by %d writes, want nil by one", err, len(server.Requests("ConfigPublishRequest")))
		}
		err := r.target.Record(t.Context(), "guard", map[string]string{"large": strings.Repeat("x", 5<<20), "small": "", "h0": "next"})
		var refused registry.Refused
		if !errors.As(err, &refused) || !refused.Has("large") || len(refused) != 1 {
			t.Errorf("Record() with one of 5 MiB = %v, want only that one refused", err)
		}
		delete(texts, "small")
		texts["h0"] = "next"
		if got, err := r.target.Records(t.Context(), "guard"); err != nil || !maps.Equal(got, texts) {
			t.Errorf("Records() = %v, %v, want %v", got, err, texts)
		}
	})
	bubble(t, "what another tool wrote there is an error and is kept", func(t *testing.T) {
		server := nacosfake.NewServer()
		r := start(t, server, nil)
		at := nacosfake.Config{Group: "xds-bridge", DataID: "xds-bridge." + mine.Owner + ".decisions"}
		server.SetConfig(at, "key=value")
		if _, err := r.target.Records(t.Context(), "decisions"); !errors.Is(err, registry.ErrRefused) {
			t.Error(err)
		}
		if err := r.target.Record(t.Context(), "decisions", map[string]string{"h": "text"}); !errors.Is(err, registry.ErrRefused) || server.Config(at) != "key=value" {
			t.Errorf("Record() = %v with %q stored, want a refusal and key=value", err, server.Config(at))
		}
	})
	bubble(t, "a user without the right to write configurations gets an error", func(t *testing.T) {
		server := nacosfake.NewServer()
		r := start(t, server, nil)
		server.Fail(func(q nacosfake.Request) (int, string) {
			if q.Type == "ConfigPublishRequest" {
				return 403, "no right"
			}
			return 0, ""
		})
		if err := r.target.Record(t.Context(), "decisions", map[string]string{"h": "text"}); !errors.Is(err, registry.ErrRefused) {
			t.Error(err)
		}
		if err := r.target.TryRecord(t.Context()); !errors.Is(err, registry.ErrRefused) {
			t.Error(err)
		}
		server.Fail(nil)
		at := nacosfake.Config{Group: "xds-bridge", DataID: "xds-bridge." + mine.Owner + ".preflight"}
		if err := r.target.TryRecord(t.Context()); err != nil || server.Config(at) != "" {
			t.Errorf("TryRecord() = %v with %q stored, want nil and nothing", err, server.Config(at))
		}
	})
}
