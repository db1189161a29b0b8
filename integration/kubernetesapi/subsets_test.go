package kubernetesapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

// withRules makes the target of a world keep rules.
func (w *world) withRules(t *testing.T) {
	t.Helper()
	o := options(w.namespace)
	o.Rules = true
	w.target = kubernetes.NewWatchedTarget(w.api, o)
}

// rulePath returns where the API has a rule.
func (w *world) rulePath(name string) string {
	return strings.Replace(w.path(name), "serviceentries", "destinationrules", 1)
}

// subsets returns the names of the subsets of a rule.
func (w *world) subsets(t *testing.T, name string) (names []string) {
	t.Helper()
	o, err := serviceentry.ParseObject([]byte(w.Do(t, http.MethodGet, w.rulePath(name), "")))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range o.Spec.Subsets {
		names = append(names, s.Name)
	}
	return names
}

// divided is a service of two versions.
func divided() *registry.Service {
	s := service("divided", 3)
	s.Endpoints[2].Attributes = registry.Attributes{"version": "V2.0"}
	return s
}

func testSubsets(t *testing.T, w *world) {
	w.withRules(t)
	want := w.encodeWith(t, divided(), "version")
	group := want[0].Group
	if err := w.bring(t.Context(), group, want...); err != nil {
		t.Fatal(err)
	}
	w.expect(t, want)
	if got := w.subsets(t, group.Name); !slices.Equal(got, []string{"v1", "v2-0"}) {
		t.Errorf("subsets %v", got)
	}
	w.watched(t)
	w.watch(t, group)
	w.Do(t, http.MethodDelete, w.rulePath(group.Name), "")
	w.expectChanges(t, group)
	w.watch(t, group)
	if err := w.bring(t.Context(), group, want...); err != nil {
		t.Fatal(err)
	}
	w.expect(t, want)
	status, answer := w.Apply(t, w.rulePath(group.Name), fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"DestinationRule","metadata":{"name":%q},
		"spec":{"host":%[1]q,"trafficPolicy":{"tls":{"mode":"DISABLE"}}}}`, group.Name))
	if status >= http.StatusMultipleChoices {
		t.Fatalf("apply as another: status %d: %s", status, answer)
	}
	refusedWith(t, w.bring(t.Context(), group, w.encodeWith(t, service("divided", 2), "version")...), serviceentry.SubsetsKey, "another manager of fields")
	if got := len(w.object(t, group.Name).Spec.Endpoints); got != 2 {
		t.Errorf("the service has %d endpoints, want 2: the rule alone is refused", got)
	}
	w.Do(t, http.MethodDelete, w.rulePath(group.Name), "")
	if err := w.bring(t.Context(), group, want...); err != nil {
		t.Fatal(err)
	}
	w.Do(t, http.MethodDelete, w.path(group.Name), "") // a rule is left without its service
	if groups, err := w.target.Groups(t.Context()); err != nil || !slices.Equal(groups, []registry.Group{group}) {
		t.Errorf("Groups = %v, %v, want %v", groups, err, group)
	}
	if err := w.bring(t.Context(), group); err != nil {
		t.Error(err)
	}
	if groups, err := w.target.Groups(t.Context()); err != nil || len(groups) != 0 {
		t.Errorf("Groups = %v, %v, want none", groups, err)
	}
}

func testRuleOfAnother(t *testing.T, w *world) {
	w.withRules(t)
	want := w.encodeWith(t, divided(), "version")
	group := want[0].Group
	for _, name := range []string{group.Name, "theirs"} {
		w.Do(t, http.MethodPost, w.rulePath(""), fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"DestinationRule","metadata":{"name":%q},
			"spec":{"host":%q}}`, name, group.Name))
		if _, err := w.target.Groups(t.Context()); err != nil {
			t.Fatal(err)
		}
		held, err := w.target.Read(t.Context(), group)
		if err != nil || len(held) != 1 || held[0].Key != serviceentry.SubsetsKey || held[0].Owner != "" {
			t.Errorf("%s: Read = %v, %v, want a rule that nobody owns", name, held, err)
		}
		w.Do(t, http.MethodDelete, w.rulePath(name), "")
	}
}
