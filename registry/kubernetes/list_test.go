package kubernetes_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry/kubelist"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

// bounded is an API whose answers are at most so large, over the server of a world.
func (w *apiWorld) bounded(t *testing.T, most int64) *kubernetes.API {
	t.Helper()
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	c := &rest.Config{Host: server.URL}
	c.Wrap(kubelist.Bound(most))
	api, err := kubernetes.NewAPI(c, "me")
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// TestAPI_LargeObjects: a page that is larger than limits.maxReceive is read in parts, and
// each object is read as it is.
func TestAPI_LargeObjects(t *testing.T) {
	w := newAPIWorld(t)
	var want []string
	for i := range 50 {
		name := fmt.Sprintf("h%02d.internal", i)
		want = append(want, name)
		o := serviceentry.Object{
			APIVersion: serviceentry.APIVersion, Kind: serviceentry.ObjectKind, Metadata: serviceentry.ObjectMeta{Name: name, Namespace: namespace},
			Spec: serviceentry.ObjectSpec{Hosts: []string{name}, Endpoints: []serviceentry.Workload{{Address: "10.0.0.1", Labels: map[string]string{"a": strings.Repeat("x", 1000)}}}},
		}
		if err := w.Put("serviceentries", o); err != nil {
			t.Fatal(err)
		}
	}
	list := func(api *kubernetes.API) (names []string, requests int) {
		before := w.Requests()
		all, err := api.List(t.Context(), serviceentry.ObjectKind, namespace)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			names = append(names, o.Metadata.Name)
		}
		return names, w.Requests() - before
	}
	api := w.bounded(t, 16<<10)
	first, tries := list(api)
	again, requests := list(api)
	if !slices.Equal(first, want) || !slices.Equal(again, want) {
		t.Errorf("List() = %v, then %v, want %v", first, again, want)
	}
	if tries != requests+1 {
		t.Errorf("%d requests, then %d: want one that was too large", tries, requests)
	}
	for _, name := range want[:2] {
		if o, err := api.Get(t.Context(), serviceentry.ObjectKind, namespace, name); err != nil || len(o.Spec.Endpoints) != 1 {
			t.Errorf("Get(%s) = %v, %v, want it with its endpoint", name, o, err)
		}
	}
	if _, err := w.bounded(t, 500).List(t.Context(), serviceentry.ObjectKind, namespace); !errors.Is(err, kubelist.ErrTooLarge) {
		t.Errorf("error %v, want %v: no object fits", err, kubelist.ErrTooLarge)
	}
}
