package kubernetes_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

// A subsetWorld is a directory and a target that keeps subsets by version there.
type subsetWorld struct {
	dir    string
	store  *kubernetes.Directory
	target *kubernetes.Target
	codec  *serviceentry.Codec
}

func newSubsetWorld(t *testing.T) *subsetWorld {
	t.Helper()
	w := &subsetWorld{dir: t.TempDir()}
	w.store = kubernetes.NewDirectory(w.dir)
	w.target = kubernetes.NewTarget(w.store, kubernetes.Options{Owner: "me", Namespace: namespace, Rules: true})
	w.codec = subsetCodec(t, "version")
	return w
}

// subsetCodec returns one that asks for subsets by a label; empty: for none.
func subsetCodec(t *testing.T, label string) *serviceentry.Codec {
	t.Helper()
	c, err := serviceentry.New(serviceentry.Options{
		Hosts: naming.MeshHosts{Registry: "zk", Suffix: "bridge.internal"}, Namespace: namespace,
		Mark: metadata.NewMark("me", "b"), ExportTo: []string{"shop"}, SubsetLabel: label,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// versions is a service of an endpoint for each version; "" has none.
func versions(all ...string) *registry.Service {
	s := service("greeter", len(all))
	for i, v := range all {
		s.Endpoints[i].Attributes = registry.Attributes{"zone": "a"}
		if v != "" {
			s.Endpoints[i].Attributes["version"] = v
		}
	}
	return s
}

// rule returns the subsets of the rule that is stored, nil if there is none.
func (w *subsetWorld) rule(t *testing.T, group registry.Group) map[string]string {
	t.Helper()
	o, err := w.store.Get(t.Context(), serviceentry.RuleKind, namespace, group.Name)
	if err != nil {
		t.Fatal(err)
	}
	if o == nil {
		return nil
	}
	all := make(map[string]string)
	for _, s := range o.Spec.Subsets {
		all[s.Name] = s.Labels["version"]
	}
	return all
}

// bring brings the group of a service to entries, and expects that it reads as these.
func (w *subsetWorld) bring(t *testing.T, want []registry.Entry) registry.Group {
	t.Helper()
	group := want[0].Group
	if err := bring(t.Context(), w.target, "me", group, want); err != nil {
		t.Fatal(err)
	}
	if got := entriesOf(t, w.target, group); !slices.Equal(got, want) {
		t.Errorf("Read =\n%v\nwant\n%v", got, want)
	}
	return group
}

func TestSubsets_FollowStoredEndpoints(t *testing.T) {
	t.Parallel()
	w := newSubsetWorld(t)
	for _, tt := range []struct {
		service *registry.Service
		want    map[string]string
	}{
		{versions("v1", "v2", "v2", ""), map[string]string{"v1": "v1", "v2": "v2"}},
		{versions("v2"), map[string]string{"v2": "v2"}},
		{versions("1.0", "V1_b", "1-0"), map[string]string{"1-0": "1-0", "1-0-q3vlit": "1.0", "v1-b": "V1_b"}},
		{versions(), map[string]string{}},
		{versions("v3"), map[string]string{"v3": "v3"}},
	} {
		group := w.bring(t, encode(t, w.codec, tt.service))
		if got := w.rule(t, group); got == nil || len(got) != len(tt.want) || !maps.Equal(got, tt.want) {
			t.Errorf("subsets %v, want %v", got, tt.want)
		}
	}
	// An endpoint that is held keeps its subset.
	want := encode(t, w.codec, versions("v3", "v4"))
	group := w.bring(t, want)
	kept := append(slices.Clone(encode(t, w.codec, versions("v3"))), want[len(want)-1])
	w.bring(t, kept)
	if got := w.rule(t, group); !maps.Equal(got, map[string]string{"v3": "v3", "v4": "v4"}) {
		t.Errorf("subsets %v, want that of the endpoint that stays too", got)
	}
}

func TestSubsets_Removal(t *testing.T) {
	t.Parallel()
	w := newSubsetWorld(t)
	want := encode(t, w.codec, versions("v1", "v2"))
	group := w.bring(t, want)
	golden := filepath.Join("testdata", "subsets.yaml")
	text, err := os.ReadFile(filepath.Join(w.dir, group.Name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		_ = os.WriteFile(golden, text, 0o644)
	}
	if want, _ := os.ReadFile(golden); string(want) != string(text) {
		t.Errorf("the file is\n%s\nwant\n%s", text, want)
	}
	without := encode(t, subsetCodec(t, ""), versions("v1", "v2"))
	w.bring(t, without)
	if got := w.rule(t, group); got != nil {
		t.Errorf("subsets %v without the setting, want none", got)
	}
	w.bring(t, want)
	held, err := w.target.Read(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	// The head is deleted before the subsets that endpoints refer to.
	c := registry.Change{Group: group, Delete: slices.DeleteFunc(held, func(h registry.Stored) bool { return registry.IsPart(h.Key) })}
	if err := w.target.Write(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if files, _ := os.ReadDir(w.dir); len(files) != 0 {
		t.Errorf("files %v, want none", files)
	}
}

func TestSubsets_Drift(t *testing.T) {
	t.Parallel()
	w := newSubsetWorld(t)
	want := encode(t, w.codec, versions("v1", "v2"))
	group := w.bring(t, want)
	path := filepath.Join(w.dir, group.Name+".yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	service, _, _ := strings.Cut(string(text), "\n---\n")
	for what, edited := range map[string]string{
		"the rule is gone":    service + "\n",
		"a subset is gone":    strings.Replace(string(text), "  - labels:\n      version: v2\n    name: v2\n", "", 1),
		"it has a policy":     string(text) + "  trafficPolicy: {}\n",
		"it is for all":       strings.Replace(string(text), "spec:\n  exportTo:\n  - shop\n  host:", "spec:\n  host:", 1),
		"the service is gone": string(text)[len(service)+len("\n---\n"):],
	} {
		if edited == string(text) {
			t.Fatalf("%s: the file is unchanged, want it edited", what)
		}
		if err := os.WriteFile(path, []byte(edited), 0o600); err != nil {
			t.Fatal(err)
		}
		if groups, err := w.target.Groups(t.Context()); err != nil || !slices.Equal(groups, []registry.Group{group}) {
			t.Errorf("%s: Groups = %v, %v, want %v", what, groups, err, group)
		}
		if got := entriesOf(t, w.target, group); slices.Equal(got, want) {
			t.Errorf("%s: read %v, want the drift", what, got)
		}
		w.bring(t, want)
		if now, _ := os.ReadFile(path); string(now) != string(text) {
			t.Errorf("%s: the file is\n%s\nwant\n%s", what, now, text)
		}
	}
}

func TestSubsets_LeaveTheRuleOfAnother(t *testing.T) {
	t.Parallel()
	want := encode(t, newSubsetWorld(t).codec, versions("v1"))
	group := want[0].Group
	theirs := func(name string) string {
		return "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata:\n  name: " + name + "\n  namespace: " + namespace +
			"\nspec:\n  host: " + group.Name + "\n  trafficPolicy:\n    tls:\n      mode: DISABLE"
	}
	for what, name := range map[string]string{"by its name": group.Name, "by another name": "theirs"} {
		w := newSubsetWorld(t)
		path := filepath.Join(w.dir, name+".yaml")
		if err := os.WriteFile(path, []byte(theirs(name)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := w.target.Groups(t.Context()); err != nil {
			t.Fatal(err)
		}
		held, err := w.target.Read(t.Context(), group)
		if err != nil || len(held) != 1 || held[0].Key != serviceentry.SubsetsKey || held[0].Owner != "" {
			t.Errorf("%s: Read = %v, %v, want a rule without an owner", what, held, err)
		}
		// The planner writes all but that.
		c := registry.Change{Group: group, Want: want}
		for _, e := range want {
			if e.Key != serviceentry.SubsetsKey {
				c.Put = append(c.Put, registry.Write{New: e})
			}
		}
		if err := w.target.Write(t.Context(), c); err != nil {
			t.Errorf("%s: Write() = %v, want nil", what, err)
		}
		if text, _ := os.ReadFile(path); !strings.Contains(string(text), theirs(name)) {
			t.Errorf("%s: the rule is\n%s\nwant that of the other owner", what, text)
		}
		if name == group.Name { // it came there meanwhile
			c.Put = []registry.Write{{New: want[1]}}
			err := w.target.Write(t.Context(), c)
			if refused, ok := errors.AsType[registry.Refused](err); !ok || !refused.Has(serviceentry.SubsetsKey) {
				t.Errorf("%s: Write of ours = %v, want a refusal of it", what, err)
			}
		}
		if s, err := w.store.Get(t.Context(), serviceentry.ObjectKind, namespace, group.Name); err != nil || s == nil || len(s.Entries(netip.Prefix{})) != 2 {
			t.Errorf("%s: Get() = %v, %v, want a service with two entries", what, s, err)
		}
	}
}

// TestSubsets_MissingRight: without rights to DestinationRules, ServiceEntries are written as
// before. With some of the rights, no rule is written that cannot be read.
func TestSubsets_MissingRight(t *testing.T) {
	t.Parallel()
	w, codec := newAPIWorld(t), subsetCodec(t, "version")
	first := encode(t, codec, versions("v1"))
	group := first[0].Group
	if err := bring(t.Context(), w.target.Target, "me", group, first); err != nil {
		t.Fatal(err)
	}
	deny := func(of func(*http.Request) bool) {
		w.with(http.StatusForbidden, statusOf(http.StatusForbidden, "Forbidden", ""), func(r *http.Request) bool {
			return strings.Contains(r.URL.Path, "/destinationrules") && of(r)
		}, 100)
	}
	deny(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/destinationrules") })
	if groups, err := w.target.Groups(t.Context()); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("Groups = %v, %v where rules may be read and not listed, want a refusal", groups, err)
	}
	deny(every)
	if groups, err := w.target.Groups(t.Context()); err != nil || !slices.Equal(groups, []registry.Group{group}) {
		t.Errorf("Groups = %v, %v, want %v", groups, err, group)
	}
	next := encode(t, codec, versions("v2", "v3"))
	services := func(all []registry.Entry) []registry.Entry {
		return slices.DeleteFunc(slices.Clone(all), func(e registry.Entry) bool { return e.Key == serviceentry.SubsetsKey })
	}
	for _, want := range [][]registry.Entry{next, first} {
		err := bring(t.Context(), w.target.Target, "me", group, want)
		refused, ok := errors.AsType[registry.Refused](err)
		if !ok || len(refused) != 1 || !strings.Contains(fmt.Sprint(refused[serviceentry.SubsetsKey]), "allow get for destinationrules") {
			t.Errorf("Write = %v, want only the subsets refused", err)
		}
		if got := entriesOf(t, w.target.Target, group); !slices.Equal(got, services(want)) {
			t.Errorf("Read = %v, want %v", got, services(want))
		}
	}
	w.fault.Store(nil)
	held, err := w.target.Read(t.Context(), group)
	if err != nil || len(held) != len(first) {
		t.Errorf("Read = %v, %v, want the rule as it was", held, err)
	}
	deny(every)
	err = w.target.Write(t.Context(), registry.Change{Group: group, Delete: held})
	if refused, ok := errors.AsType[registry.Refused](err); !ok || len(refused) != 1 || !refused.Has(serviceentry.SubsetsKey) {
		t.Errorf("Write of no more = %v, want only the subsets refused", err)
	}
	w.fault.Store(nil)
	if groups, err := w.target.Groups(t.Context()); err != nil || !slices.Equal(groups, []registry.Group{group}) {
		t.Errorf("Groups = %v, %v, want that of the rule that is left", groups, err)
	}
	if err := bring(t.Context(), w.target.Target, "me", group, nil); err != nil || len(entriesOf(t, w.target.Target, group)) != 0 {
		t.Errorf("Write() of what was left = %v, want nil", err)
	}
}
