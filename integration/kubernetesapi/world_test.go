// Package kubernetesapi tests the target of ServiceEntries against a real API
// server with istio's custom resource definitions.
package kubernetesapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

const (
	owner = "me"
	soon  = 60 * time.Second
)

// A cluster is an API server that tests share, each by a namespace of its own.
type cluster struct {
	*harness.Kubernetes

	namespaces atomic.Int32
}

// A world is a namespace and what a target writes there.
type world struct {
	*cluster

	namespace string
	api       *kubernetes.API
	target    *kubernetes.WatchedTarget
}

func (c *cluster) world(t *testing.T) *world {
	t.Helper()
	namespace := fmt.Sprint("test-", c.namespaces.Add(1))
	c.Namespace(t, namespace)
	return c.as(t, namespace, c.config(harness.Administrator))
}

// as returns a world of whom a configuration makes the client.
func (c *cluster) as(t *testing.T, namespace string, config *rest.Config) *world {
	t.Helper()
	api, err := kubernetes.NewAPI(config, owner)
	if err != nil {
		t.Fatal(err)
	}
	return &world{c, namespace, api, kubernetes.NewWatchedTarget(api, options(namespace))}
}

func (c *cluster) config(token string) *rest.Config {
	return &rest.Config{Host: c.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: c.CA}}
}

func vips() netip.Prefix { return netip.MustParsePrefix("240.64.0.0/12") }

// service is a plain service of so many endpoints.
func service(name string, endpoints int) *registry.Service {
	s := &registry.Service{Name: registry.Name(name), Protocol: "grpc", Path: "a0b1", Attributes: registry.Attributes{"team": "shop"}}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, registry.Endpoint{
			Host: fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), Port: 50051, Weight: 100, Zone: "eu/a", Attributes: registry.Attributes{"version": "v1"},
		})
	}
	return s
}

func options(namespace string) kubernetes.Options {
	return kubernetes.Options{Owner: owner, Namespace: namespace, VIPs: vips()}
}

// encode returns what a group holds of a service.
func (w *world) encode(t *testing.T, s *registry.Service) []registry.Entry {
	t.Helper()
	return w.encodeWith(t, s, "")
}

// encodeWith does with subsets by a label.
func (w *world) encodeWith(t *testing.T, s *registry.Service, subsetLabel string) []registry.Entry {
	t.Helper()
	c, err := serviceentry.New(serviceentry.Options{
		Hosts: naming.MeshHosts{Registry: "zk", Suffix: "bridge.internal"}, Namespace: w.namespace,
		Mark: metadata.NewMark(owner, "b"), VIPs: vips(), ExportTo: []string{"shop", "istio-system"}, SubsetLabel: subsetLabel,
	})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := c.Encode(s)
	if _, leftOut := errors.AsType[*registry.LeftOut](err); err != nil && !leftOut {
		t.Fatal(err)
	}
	return entries
}

// change returns how a group comes from what it holds to entries.
func (w *world) change(ctx context.Context, group registry.Group, want ...registry.Entry) (registry.Change, error) {
	held, err := w.target.Read(ctx, group)
	return change(held, group, want...), err
}

func change(held []registry.Stored, group registry.Group, want ...registry.Entry) registry.Change {
	c := registry.Change{Group: group, Want: want}
	for _, h := range held {
		i := slices.IndexFunc(want, func(e registry.Entry) bool { return e.Key == h.Key })
		switch {
		case i < 0:
			c.Delete = append(c.Delete, h)
		case want[i] != h.Entry:
			c.Put = append(c.Put, registry.Write{New: want[i], Old: &h})
		}
	}
	for _, e := range want {
		if !slices.ContainsFunc(held, func(h registry.Stored) bool { return h.Key == e.Key }) {
			c.Put = append(c.Put, registry.Write{New: e})
		}
	}
	return c
}

// bring brings a group to entries; to none if there are none.
func (w *world) bring(ctx context.Context, group registry.Group, want ...registry.Entry) error {
	c, err := w.change(ctx, group, want...)
	if err != nil || c.Empty() {
		return err
	}
	return w.target.Write(ctx, c)
}

// write brings the group of a service to what that encodes as, and returns it.
func (w *world) write(t *testing.T, s *registry.Service) []registry.Entry {
	t.Helper()
	entries := w.encode(t, s)
	if err := w.bring(t.Context(), entries[0].Group, entries...); err != nil {
		t.Fatal(err)
	}
	return entries
}

func (w *world) entries(t *testing.T, group registry.Group) (all []registry.Entry) {
	t.Helper()
	held, err := w.target.Read(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range held {
		all = append(all, h.Entry)
	}
	return all
}

func (w *world) expect(t *testing.T, want []registry.Entry) {
	t.Helper()
	if got := w.entries(t, want[0].Group); !slices.Equal(got, want) {
		t.Errorf("Read(%s) =\n%v\nwant\n%v", want[0].Group, got, want)
	}
}

// path returns where the API has an object, or all of the namespace.
func (w *world) path(name string) string {
	path := "/apis/networking.istio.io/v1/namespaces/" + w.namespace + "/serviceentries"
	if name != "" {
		path += "/" + name
	}
	return path
}

// object returns an object as it is stored.
func (w *world) object(t *testing.T, name string) serviceentry.Object {
	t.Helper()
	o, err := serviceentry.ParseObject([]byte(w.Do(t, http.MethodGet, w.path(name), "")))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// edit changes an object as kubectl edit does.
func (w *world) edit(t *testing.T, name string, change func(*serviceentry.Object)) {
	t.Helper()
	o := w.object(t, name)
	change(&o)
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	w.Do(t, http.MethodPut, w.path(name)+"?fieldManager=kubectl-edit", string(text))
}
