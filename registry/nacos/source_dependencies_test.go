package nacos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// A shopRig is a source of applications and the providers of one, each at an
// address with a revision.
type shopRig struct{ *readRig }

// asks is an Asker whose answers belong to one document each.
type asks func(ctx context.Context, ref metadata.Ref) (string, error)

func (a asks) Ask(ctx context.Context, ref metadata.Ref) (string, error) { return a(ctx, ref) }

func (asks) Question(metadata.Ref) string { return "" }

func newShopRig(t *testing.T, asker dependency.Asker, tune ...tuneFunc) shopRig {
	t.Helper()
	codec, err := dubbo.NewNacosApp(dubbo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return shopRig{newReadRig(t, append(tune, func(_ *nacos.Options, o *nacos.SourceOptions) {
		o.Formats, o.Asker = []nacos.Format{codec}, asker
	})...)}
}

// provide makes providers all that there are, each as address/revision.
func (r shopRig) provide(providers ...string) {
	var all []model.Instance
	for _, p := range providers {
		ip, revision, _ := strings.Cut(p, "/")
		all = append(all, shopInstance(ip, revision))
	}
	r.server.Set(nacosfake.Service{Group: "DEFAULT_GROUP", Name: "shop"}, "providers", all...)
}

// shopInstance is what a provider registers that stores its document, or keeps
// it where the revision begins with own.
func shopInstance(ip, revision string) model.Instance {
	storage := "remote"
	if strings.HasPrefix(revision, "own") {
		storage = "local"
	}
	return model.Instance{
		Ip: ip, Port: 20880, Weight: 1, Enable: true, Healthy: true, Ephemeral: true,
		Metadata: map[string]string{
			"dubbo.metadata.revision": revision, "dubbo.metadata.storage-type": storage, "meta-v": "2.0.0",
			"dubbo.metadata-service.url-params": `{"port":"20880","protocol":"tri","version":"2.0.0"}`,
		},
	}
}

func document(revision string) string {
	return fmt.Sprintf(`{"app":"shop","revision":%q,"services":{"api.Shop:tri":{"name":"api.Shop","path":"api.Shop","protocol":"tri","params":{}}}}`, revision)
}

func (r shopRig) store(revision string) {
	r.server.SetConfig(nacosfake.Config{Group: revision, DataID: "shop"}, document(revision))
}

// why returns why what the application provides cannot be known, empty where it
// can.
func (r shopRig) why() string {
	for scope, err := range r.tableState().Unknown {
		if strings.Contains(scope, "/shop/") {
			return err.Error()
		}
	}
	return ""
}

func TestSource_Documents(t *testing.T) {
	bubble(t, "a revision that no server accepts affects only its instance, and is reported", func(t *testing.T) {
		r := newShopRig(t, nil)
		r.store("r1")
		r.provide("10.0.0.1/r1")
		r.run(t)
		later(time.Minute)
		r.provide("10.0.0.1/r1", "10.6.6.6/bad revision")
		later(time.Minute)
		r.provide("10.0.0.1/r1", "10.0.0.2/r1", "10.6.6.6/bad revision")
		later(10 * time.Second)
		r.reports(t, "api.Shop=10.0.0.1,10.0.0.2")
		r.fresh(t)
		if skipped := r.table.Skipped(); len(skipped) != 1 {
			t.Errorf("left out: %v, want one with its reason", skipped)
		}
		if n := len(r.server.Requests("ConfigQueryRequest")); n != 1 {
			t.Errorf("%d documents asked for, want the one that can be", n)
		}
	})
	bubble(t, "a document that is stored minutes late keeps its application unknown till then", func(t *testing.T) {
		r := newShopRig(t, nil)
		r.store("r1")
		r.provide("10.0.0.1/r1")
		r.run(t)
		later(time.Second)
		r.provide("10.0.0.1/r2", "10.0.0.2/r1")
		for range 5 {
			later(time.Minute)
			if why := r.why(); !strings.Contains(why, "r2") || !strings.Contains(why, "is not stored yet") {
				t.Errorf("unknown for %q, want the revision and that it is not stored", why)
			}
		}
		r.store("r2")
		later(12 * time.Second)
		r.reports(t, "api.Shop=10.0.0.1,10.0.0.2")
		r.fresh(t)
	})
	bubble(t, "a registry with a missing document is read, and only its application is unknown", func(t *testing.T) {
		r := newShopRig(t, nil)
		r.provide("10.0.0.1/r1")
		r.run(t)
		later(10 * time.Minute)
		if k := r.tableState(); !k.Synced || k.Stale != nil || !strings.Contains(r.why(), "is not stored yet") {
			t.Errorf("state of the table %+v, want one that is synced and a document that is not stored", k)
		}
	})
	bubble(t, "a new revision removes no endpoint while its document is read", func(t *testing.T) {
		r := newShopRig(t, nil)
		r.store("r1")
		r.store("r2")
		r.provide("10.0.0.1/r1")
		r.run(t)
		later(time.Second)
		reader := r.table.Reader()
		reader.Drain()
		r.server.Fail(func(q nacosfake.Request) (int, string) {
			if q.Type == "ConfigQueryRequest" {
				time.Sleep(3 * time.Second)
			}
			return 0, ""
		})
		r.provide("10.0.0.1/r2")
		later(2 * time.Second)
		r.reports(t, "api.Shop=10.0.0.1")
		later(3 * time.Second)
		r.reports(t, "api.Shop=10.0.0.1")
		r.fresh(t)
	})
	bubble(t, "a provider that does not answer delays no other, and is asked again", func(t *testing.T) {
		var silent atomic.Bool
		silent.Store(true)
		r := newShopRig(t, asks(func(ctx context.Context, _ metadata.Ref) (string, error) {
			if silent.Load() {
				ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				<-ctx.Done()
				return "", errors.New("no answer")
			}
			return document("own"), nil
		}))
		r.store("r1")
		r.provide("10.0.0.1/r1", "10.0.0.3/own")
		r.run(t)
		later(3 * time.Second)
		r.reports(t, "api.Shop=10.0.0.1")
		if why := r.why(); !strings.Contains(why, "no answer") {
			t.Errorf("unknown for %q, want no answer", why)
		}
		r.provide("10.0.0.1/r1", "10.0.0.2/r1", "10.0.0.3/own")
		later(time.Second)
		r.reports(t, "api.Shop=10.0.0.1,10.0.0.2")
		silent.Store(false)
		later(15 * time.Second)
		if rows := r.rows(); !slices.Equal(rows, []string{"api.Shop=10.0.0.1,10.0.0.2,10.0.0.3"}) {
			t.Errorf("rows %q, want all three endpoints", rows)
		}
		r.fresh(t)
	})
	bubble(t, "a new revision that can never be had leaves what its provider reported before unknown", func(t *testing.T) {
		r := newShopRig(t, asks(func(context.Context, metadata.Ref) (string, error) {
			return "", fmt.Errorf("%w: it speaks another protocol", registry.ErrRefused)
		}))
		r.store("r1")
		r.provide("10.0.0.1/r1", "10.0.0.2/r1")
		r.run(t)
		later(time.Second)
		r.provide("10.0.0.1/r1", "10.0.0.2/own")
		for range 3 {
			later(time.Minute)
			r.reports(t, "api.Shop=10.0.0.1")
			if why := r.why(); !strings.Contains(why, "10.0.0.2") || !strings.Contains(why, "another protocol") {
				t.Errorf("unknown for %q, want that 10.0.0.2 speaks another protocol", why)
			}
		}
		r.server.Drop()
		later(time.Minute)
		if why := r.why(); !strings.Contains(why, "another protocol") {
			t.Errorf("unknown for %q over a new connection, want another protocol", why)
		}
		for key, why := range r.table.Skipped() {
			if !strings.Contains(why, "another protocol") {
				t.Errorf("%s left out for %q, want another protocol", key, why)
			}
		}
		r.provide("10.0.0.1/r1")
		later(10 * time.Second)
		r.fresh(t)
	})
	bubble(t, "a provider that cannot be asked is left out, and keeps nothing unknown", func(t *testing.T) {
		r := newShopRig(t, asks(func(context.Context, metadata.Ref) (string, error) {
			return "", fmt.Errorf("%w: it speaks another protocol", registry.ErrRefused)
		}))
		r.store("r1")
		r.provide("10.0.0.1/r1", "10.0.0.3/own")
		r.run(t)
		later(time.Second)
		r.reports(t, "api.Shop=10.0.0.1")
		r.fresh(t)
	})
}

// TestSource_DocumentsElsewhere: documents that are stored elsewhere are only requested there.
func TestSource_DocumentsElsewhere(t *testing.T) {
	bubble(t, "elsewhere", func(t *testing.T) {
		var asked atomic.Int32
		r := newShopRig(t, asks(func(_ context.Context, ref metadata.Ref) (string, error) {
			if revision, ok := dubbo.ParseMetadataRevision(ref.Key); !ok || revision != "r1" {
				return "", dependency.ErrMissing
			}
			asked.Add(1)
			return document("r1"), nil
		}), func(_ *nacos.Options, o *nacos.SourceOptions) { o.Elsewhere = true })
		r.store("r2") // here, where it is not looked for
		r.provide("10.0.0.1/r1", "10.0.0.2/r2")
		r.run(t)
		later(3 * time.Second)
		r.reports(t, "api.Shop=10.0.0.1")
		if n := len(r.server.Requests("ConfigQueryRequest")); n != 0 || asked.Load() != 1 {
			t.Errorf("%d documents were read here and %d elsewhere, want 0 and 1", n, asked.Load())
		}
		if why := r.why(); !strings.Contains(why, "r2") {
			t.Errorf("unknown is %q, want r2", why)
		}
	})
}
