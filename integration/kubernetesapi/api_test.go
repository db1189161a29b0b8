package kubernetesapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/internal/conformance"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

// TestAPI runs its tests against one API server.
func TestAPI(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := &cluster{Kubernetes: harness.StartKubernetes(t)}
	t.Run("without definitions the error says what to install", func(t *testing.T) { testNoDefinitions(t, c) })
	c.InstallIstio(t)
	t.Run("conformance", func(t *testing.T) {
		conformance.Target(t, func(t *testing.T) conformance.Fixture {
			t.Helper()
			w := c.world(t)
			return conformance.ServiceEntries(w.target, owner, w.namespace)
		})
	})
	t.Run("the rights of the Role suffice, and each is needed", func(t *testing.T) {
		t.Parallel()
		testRights(t, c)
	})
	for name, test := range map[string]func(*testing.T, *world){
		"what the codec writes reads back equal":                    testRoundTrip,
		"fields of another manager are refused and named":           testFieldConflict,
		"an object without our mark is left alone":                  testUnmarked,
		"an edit by hand is read, and written back":                 testEdited,
		"istiod serves what the API server stores":                  testServed,
		"what an adopted owner wrote is adopted":                    testAdopted,
		"an object that is created meanwhile is a conflict":         testCreatedMeanwhile,
		"what changed or was made anew is not deleted":              testDeletePreconditions,
		"a namespace that is not there is named":                    testNoNamespace,
		"a namespace that is being deleted accepts nothing":         testTerminating,
		"a service of 5000 endpoints is kept":                       testLargeService,
		"a provider with more than an object may hold is written":   testLimits,
		"objects of several pages are all listed, or none are":      testPages,
		"no failure is mistaken for an object that is not there":    testFaults,
		"an object that cannot be read costs itself alone":          testBroken,
		"a write whose answer is lost is repeated":                  testWriteUnanswered,
		"what others change is reported, and what we change is not": testWatch,
		"what changes without a watch is reported after it":         testWatchEnds,
		"the state says what keeps it from watching":                testWatchRefused,
		"a try stores nothing, and says what keeps it from storing": testTry,
		"a rule of subsets is kept beside a service":                testSubsets,
		"records are kept and bounded":                              testRecords,
		"a rule of another is left alone":                           testRuleOfAnother,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c.world(t))
		})
	}
}

func refusedWith(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !errors.Is(err, registry.ErrRefused) {
		t.Errorf("error %v, want a refusal", err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

func testNoDefinitions(t *testing.T, c *cluster) {
	t.Helper()
	w := c.world(t)
	const say = "install istio's custom resource definitions"
	want := w.encode(t, service("greeter", 1))
	_, err := w.target.Groups(t.Context())
	refusedWith(t, err, say)
	_, err = w.target.Read(t.Context(), want[0].Group)
	refusedWith(t, err, say)
	refusedWith(t, w.api.Try(t.Context(), serviceentry.ObjectKind, w.namespace), say)
	refusedWith(t, w.api.Put(t.Context(), serviceentry.Object{
		APIVersion: serviceentry.APIVersion, Kind: serviceentry.ObjectKind, Metadata: serviceentry.ObjectMeta{Name: "a", Namespace: w.namespace},
	}), say)
}

func testRoundTrip(t *testing.T, w *world) {
	dubbo := &registry.Service{
		Name: "dubbo:api.A", Protocol: "tri", Endpoints: service("a", 2).Endpoints,
		Interfaces: []registry.Interface{{Name: "api.A", Version: "1.0", Group: "g"}},
	}
	for _, s := range []*registry.Service{service("greeter", 3), service("empty", 0), dubbo} {
		want := w.write(t, s)
		w.expect(t, want)
		o := w.object(t, want[0].Group.Name)
		again := w.write(t, s)
		if now := w.object(t, again[0].Group.Name); now.Metadata.ResourceVersion != o.Metadata.ResourceVersion {
			t.Errorf("%s is written again, unchanged", s.Name)
		}
	}
	if groups, err := w.target.Groups(t.Context()); err != nil || len(groups) != 3 {
		t.Errorf("Groups = %v, %v", groups, err)
	}
}

func testFieldConflict(t *testing.T, w *world) {
	owned, free := w.write(t, service("owned", 2)), w.write(t, service("free", 2))
	name := owned[0].Group.Name
	status, answer := w.Apply(t, w.path(name), fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":%q},
		"spec":{"hosts":[%[1]q],"endpoints":[{"address":"10.9.9.9","ports":{"grpc":1}}]}}`, name))
	if status >= http.StatusMultipleChoices {
		t.Fatalf("apply as another: status %d: %s", status, answer)
	}
	err := w.bring(t.Context(), owned[0].Group, w.encode(t, service("owned", 3))...)
	refusedWith(t, err, name, `"test"`, ".spec.endpoints")
	if got := w.object(t, name).Spec.Endpoints; len(got) != 1 || got[0].Address != "10.9.9.9" {
		t.Errorf("the endpoints of the other manager are %v", got)
	}
	if err := w.bring(t.Context(), free[0].Group, w.encode(t, service("free", 3))...); err != nil {
		t.Errorf("the other service: %v", err)
	}
}

func testUnmarked(t *testing.T, w *world) {
	want := w.encode(t, service("greeter", 2))
	name := want[0].Group.Name
	w.Do(t, http.MethodPost, w.path(""), fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":%q},
		"spec":{"hosts":["other.internal"],"ports":[{"number":80,"name":"http"}],"resolution":"NONE"}}`, name))
	before := w.object(t, name)
	held, err := w.target.Read(t.Context(), want[0].Group)
	if err != nil || len(held) == 0 || held[0].Owner != "" {
		t.Errorf("Read = %v, %v, want what nobody owns", held, err)
	}
	c, err := w.change(t.Context(), want[0].Group, want...)
	if err != nil {
		t.Fatal(err)
	}
	refusedWith(t, w.target.Write(t.Context(), c), "not ours")
	c, _ = w.change(t.Context(), want[0].Group)
	refusedWith(t, w.target.Write(t.Context(), c), "not ours")
	if now := w.object(t, name); now.Metadata.ResourceVersion != before.Metadata.ResourceVersion {
		t.Error("it was changed")
	}
}

func testEdited(t *testing.T, w *world) {
	want := w.write(t, service("greeter", 3))
	name := want[0].Group.Name
	for what, change := range map[string]func(*serviceentry.Object){
		"a port more": func(o *serviceentry.Object) {
			o.Spec.Ports = append(o.Spec.Ports, serviceentry.Port{Number: 81, Name: "http"})
		},
		"an endpoint less": func(o *serviceentry.Object) { o.Spec.Endpoints = o.Spec.Endpoints[1:] },
		"an endpoint more": func(o *serviceentry.Object) {
			o.Spec.Endpoints = append(o.Spec.Endpoints, serviceentry.Workload{Address: "10.9.9.9", Ports: map[string]uint16{"grpc": 1}})
		},
		"another port":       func(o *serviceentry.Object) { o.Spec.Ports[0].Number++ },
		"another annotation": func(o *serviceentry.Object) { o.Metadata.Annotations["xds-bridge/keys"] = "other" },
		"a label more":       func(o *serviceentry.Object) { o.Metadata.Labels["xds-bridge/more"] = "x" },
		"another label":      func(o *serviceentry.Object) { o.Metadata.Labels[serviceentry.LabelRegistry] = "x" },
		"exported to all":    func(o *serviceentry.Object) { o.Spec.ExportTo = nil },
		"another resolution": func(o *serviceentry.Object) { o.Spec.Resolution, o.Spec.Endpoints = "NONE", nil },
	} {
		w.edit(t, name, change)
		if c, err := w.change(t.Context(), want[0].Group, want...); err != nil || c.Empty() {
			t.Errorf("%s: no change is seen, %v", what, err)
		}
		if err := w.bring(t.Context(), want[0].Group, want...); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if c, err := w.change(t.Context(), want[0].Group, want...); err != nil || !c.Empty() {
			t.Errorf("%s: it is not written back: %+v, %v", what, c, err)
		}
	}
}

// testAdopted writes what a bridge of another owner wrote, whose fields it adopts.
func testAdopted(t *testing.T, w *world) {
	want := w.write(t, service("greeter", 3))
	group := want[0].Group
	other := metadata.OwnerMark(owner)
	for _, adopts := range []func(string) bool{nil, func(o string) bool { return o == other }} {
		api, err := kubernetes.NewAPI(w.config(harness.Administrator), "next")
		if err != nil {
			t.Fatal(err)
		}
		target := kubernetes.NewTarget(api, kubernetes.Options{Owner: "next", Namespace: w.namespace, VIPs: vips(), Accepts: adopts})
		held, err := target.Read(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		h, err := serviceentry.ParseHeader(want[0])
		if err != nil {
			t.Fatal(err)
		}
		h.Annotations = map[string]string{serviceentry.AnnotationMark: metadata.NewMark("next", "b").String(), serviceentry.AnnotationName: "greeter"}
		next := slices.Clone(want[:2]) // two endpoints and an attribute less
		next[0].Value = metadata.JSON(h)
		err = target.Write(t.Context(), change(held, group, next...))
		if adopts == nil {
			refusedWith(t, err, "not ours")
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		w.expect(t, next)
	}
}

func testCreatedMeanwhile(t *testing.T, w *world) {
	want := w.encode(t, service("greeter", 3))
	o, err := serviceentry.NewObject(want[0].Group, want, vips().Addr().Next())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.api.Put(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o.Spec.Endpoints = o.Spec.Endpoints[:1]
	if err := w.api.Put(t.Context(), o); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Put of what is there by now = %v, want a conflict", err)
	}
	if n := len(w.object(t, o.Metadata.Name).Spec.Endpoints); n != 3 {
		t.Errorf("it has %d endpoints, want those of before", n)
	}
	stored := w.object(t, o.Metadata.Name)
	o.Metadata.ResourceVersion, o.Metadata.UID = stored.Metadata.ResourceVersion, stored.Metadata.UID
	w.edit(t, o.Metadata.Name, func(o *serviceentry.Object) { o.Metadata.Labels["more"] = "x" })
	if err := w.api.Put(t.Context(), o); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Put over what changed = %v, want a conflict", err)
	}
	w.Do(t, http.MethodDelete, w.path(o.Metadata.Name), "")
	if err := w.api.Put(t.Context(), o); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Put over what is gone = %v, want a conflict", err)
	}
}

func testDeletePreconditions(t *testing.T, w *world) {
	want := w.write(t, service("greeter", 3))
	name := want[0].Group.Name
	old := w.object(t, name)
	w.edit(t, name, func(o *serviceentry.Object) { o.Metadata.Labels["more"] = "x" })
	if err := w.api.Delete(t.Context(), old); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Delete of what changed = %v, want a conflict", err)
	}
	w.Do(t, http.MethodDelete, w.path(name), "")
	w.write(t, service("greeter", 3))
	now := w.object(t, name)
	old.Metadata.ResourceVersion = now.Metadata.ResourceVersion
	if err := w.api.Delete(t.Context(), old); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("Delete of what was made anew = %v, want a conflict", err)
	}
	w.expect(t, want)
	for range 2 { // of what is gone there is nothing to do
		if err := w.api.Delete(t.Context(), now); err != nil {
			t.Error(err)
		}
	}
}

func testNoNamespace(t *testing.T, w *world) {
	w = w.as(t, "nowhere", w.config(harness.Administrator))
	want := w.encode(t, service("greeter", 1))
	refusedWith(t, w.bring(t.Context(), want[0].Group, want...), "create namespace nowhere")
	refusedWith(t, w.api.Try(t.Context(), serviceentry.ObjectKind, w.namespace), "create namespace nowhere")
}

// testTerminating deletes a namespace, of which no controller does the last
// finalizer away.
func testTerminating(t *testing.T, w *world) {
	kept := w.write(t, service("kept", 2))
	w.Do(t, http.MethodDelete, "/api/v1/namespaces/"+w.namespace, "")
	want := w.encode(t, service("greeter", 1))
	harness.Eventually(t, soon, "nothing new is accepted", func() error {
		err := w.bring(t.Context(), want[0].Group, want...)
		if errors.Is(err, registry.ErrRefused) && strings.Contains(err.Error(), "namespace "+w.namespace+" is being deleted") {
			return nil
		}
		_ = w.bring(t.Context(), want[0].Group)
		return fmt.Errorf("got %w", err)
	})
	w.expect(t, kept)
	if err := w.bring(t.Context(), kept[0].Group); err != nil {
		t.Errorf("what goes: %v", err)
	}
}

// testLargeService writes as many endpoints as istio's definition lets be.
func testLargeService(t *testing.T, w *world) {
	const most = 4096
	want := w.encode(t, service("greeter", 5000))
	group := want[0].Group
	refused, ok := errors.AsType[registry.Refused](w.bring(t.Context(), group, want...))
	if !ok || len(refused) != 5000-most {
		t.Fatalf("Write refuses %d endpoints, want %d", len(refused), 5000-most)
	}
	kept := w.entries(t, group)
	if len(kept) != 1+most {
		t.Fatalf("%d entries are kept", len(kept))
	}
	if err := w.bring(t.Context(), group, kept[:most]...); err != nil {
		t.Fatal(err)
	}
	w.expect(t, kept[:most])
}

// testLimits writes a service whose attributes, zone and protocol exceed what the API
// server accepts: the codec leaves the rest out.
func testLimits(t *testing.T, w *world) {
	s := service("greeter", 2)
	s.Protocol, s.Endpoints[0].Zone = strings.Repeat("p", 59), "r/"+strings.Repeat("z", 2048)
	s.Endpoints[0].Attributes, s.Attributes = make(registry.Attributes), make(registry.Attributes)
	for i := range 300 {
		s.Endpoints[0].Attributes[fmt.Sprintf("p%d", i)] = "x"
		s.Attributes[fmt.Sprintf("a%d", i)] = strings.Repeat("x", 4000)
	}
	if kept := w.write(t, s); len(kept) != 3 {
		t.Errorf("%d entries are kept, want the service and both endpoints", len(kept))
	}
}

// testRecords keeps records of two owners, and more than a ConfigMap holds.
func testRecords(t *testing.T, w *world) {
	other := w.api.Recorder("other", w.namespace)
	for range 2 {
		for name, r := range map[string]registry.Recorder{"ours": w.target, "other": other} {
			if err := r.Record(t.Context(), "holds", map[string]string{name: name + "\u2028: {"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.target.Record(t.Context(), "holds", map[string]string{"gone": ""}); err != nil {
		t.Error(err)
	}
	half := strings.Repeat("x", 600<<10)
	if err := w.target.Record(t.Context(), "guard", map[string]string{"a": half}); err != nil {
		t.Error(err)
	}
	for _, texts := range []map[string]string{{"b": half}, {"b": half, "c": "c", "d": ""}} {
		refusedWith(t, w.target.Record(t.Context(), "guard", texts), `"b"`)
	}
	for kind, want := range map[string]map[string]string{"holds": {"ours": "ours\u2028: {"}, "guard": {"a": half, "c": "c"}, "decisions": {}} {
		if got, err := w.target.Records(t.Context(), kind); err != nil || !maps.Equal(got, want) {
			t.Errorf("Records(%s) = %d, %v, want %d", kind, len(got), err, len(want))
		}
	}
}

func testTry(t *testing.T, w *world) {
	if err := w.api.Try(t.Context(), serviceentry.ObjectKind, w.namespace); err != nil {
		t.Error(err)
	}
	if groups, err := w.target.Groups(t.Context()); err != nil || len(groups) != 0 {
		t.Errorf("Groups = %v, %v, want none", groups, err)
	}
}

// testServed has an istiod read objects as the API server stores them.
func testServed(t *testing.T, w *world) {
	mesh := harness.NewMesh(t)
	s := service("greeter", 2)
	store := func() string {
		name := w.write(t, s)[0].Group.Name
		unfinished := filepath.Join(t.TempDir(), "unfinished")
		if err := os.WriteFile(unfinished, []byte(w.Do(t, http.MethodGet, w.path(name), "")), 0o600); err != nil { // JSON is YAML
			t.Fatal(err)
		}
		if err := os.Rename(unfinished, filepath.Join(mesh.Dir(), name+".yaml")); err != nil {
			t.Fatal(err)
		}
		return name
	}
	host := store()
	endpoints := harness.WatchEndpoints(t, harness.StartIstiod(t, mesh).GRPC, "outbound|50051||"+host)
	endpoints.AwaitPush(t, soon, "10.0.0.1:50051", "10.0.0.2:50051")
	s.Endpoints = s.Endpoints[1:]
	store()
	endpoints.AwaitPush(t, soon, "10.0.0.2:50051")
}
