package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

func rules() kube.Rules {
	return kube.Rules{
		Domain: "cluster.local", Keys: kube.Keys{Annotation: kube.DefaultKeys, Label: "xds-bridge.io/interface"},
		SubsetLabel: "version", Pods: true, Decoder: mesh.NewDecoder(nil, mesh.AcceptMutualTLS),
	}
}

// objects reads the objects of a file.
func objects(t testing.TB, file string) []runtime.Object {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var all []runtime.Object
	for one := range strings.SplitSeq(string(text), "\n---\n") {
		all = append(all, object(t, one))
	}
	return all
}

func object(t testing.TB, text string) runtime.Object {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var kind struct{ Kind string }
	if err := json.Unmarshal(data, &kind); err != nil {
		t.Fatal(err)
	}
	o := map[string]runtime.Object{
		"Service": &core.Service{}, "Pod": &core.Pod{}, "Node": &core.Node{}, "EndpointSlice": &discovery.EndpointSlice{},
		"ServiceEntry": &kube.ServiceEntry{}, "WorkloadEntry": &kube.WorkloadEntry{},
	}[kind.Kind]
	if err := json.Unmarshal(data, o); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return o
}

// follower keeps what a model reports, as a source does.
type follower struct {
	*kube.Model

	clusters map[string]*mesh.Cluster
	rejected map[string]error
}

func follow() *follower {
	return &follower{kube.NewModel(rules()), map[string]*mesh.Cluster{}, map[string]error{}}
}

func (f *follower) update() {
	d := f.Update()
	for name, c := range d.Clusters {
		delete(f.rejected, name)
		if c == nil {
			delete(f.clusters, name)
		} else {
			f.clusters[name] = c
		}
	}
	maps.Copy(f.rejected, d.Rejected)
}

// text shows what follows, as the golden files have it.
func (f *follower) text(t testing.TB) string {
	t.Helper()
	mapping, invalid := f.Mapping()
	all, err := naming.ParsePattern("*")
	if err != nil {
		t.Fatal(err)
	}
	source, err := mesh.New(mesh.Options{Naming: mesh.Naming{Plain: []naming.Pattern{all}}, Clusters: once{
		Epoch: 1, Clusters: f.clusters, Rejected: f.rejected, Complete: true, Mapping: &debug.Snapshot{Mapping: mapping, Complete: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	table := registry.NewTable()
	if err := source.Run(t.Context(), table); !errors.Is(err, errOnce) {
		t.Fatalf("Run() = %v, want %v", err, errOnce)
	}
	services, certainty := table.Snapshot()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(services)) {
		s := services[name]
		fmt.Fprintf(&b, "%s namespace=%s application=%s %v %v\n", s.Name, s.Namespace, s.Application, s.Interfaces, map[string]string(s.Attributes))
		for _, e := range s.Endpoints {
			fmt.Fprintf(&b, "  %s %s weight=%d zone=%s instance=%s protocol=%s %v",
				e.Address(), e.Health, e.Weight, e.Zone, e.Instance, e.Protocol, map[string]string(e.Attributes))
			if e.Interfaces != nil {
				fmt.Fprintf(&b, " only %v", e.Interfaces)
			}
			b.WriteString("\n")
		}
	}
	skipped := table.Skipped()
	for _, k := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Fprintf(&b, "skipped %s: %s\n", k, skipped[k])
	}
	for _, k := range slices.Sorted(maps.Keys(certainty.Unknown)) {
		fmt.Fprintf(&b, "unknown %s: %v\n", k, certainty.Unknown[k])
	}
	for _, x := range invalid {
		fmt.Fprintf(&b, "invalid %v\n", x)
	}
	return b.String()
}

// once is a reader that reports its changes and ends.
type once mesh.Changes

var errOnce = errors.New("everything was reported")

func (o once) Run(_ context.Context, changed func(mesh.Changes)) error {
	changed(mesh.Changes(o))
	return errOnce
}

func (once) Recheck() {}

func files(t testing.TB) []string {
	t.Helper()
	all, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(all) == 0 {
		t.Fatal(err)
	}
	for i := range all {
		all[i] = filepath.Base(all[i])
	}
	return all
}

func TestWorld(t *testing.T) {
	for _, file := range files(t) {
		t.Run(strings.TrimSuffix(file, ".yaml"), func(t *testing.T) {
			f := follow()
			for _, o := range objects(t, file) {
				f.Put(o)
			}
			f.update()
			golden(t, strings.TrimSuffix(file, ".yaml"), f.text(t))
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs (UPDATE_GOLDEN=1 rewrites it)\n got:\n%s\nwant:\n%s", file, got, want)
	}
}

// TestWorld_EventOrder has objects come and go in any order, with any
// of them reported of in between.
func TestWorld_EventOrder(t *testing.T) {
	var all []runtime.Object
	for _, file := range files(t) {
		all = append(all, objects(t, file)...)
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		there := make(map[int]bool)
		f := follow()
		for range 3 * len(all) {
			i := r.IntN(len(all))
			if there[i] = !there[i] || r.IntN(3) == 0; there[i] {
				f.Put(all[i])
			} else {
				f.Remove(all[i])
			}
			if r.IntN(4) == 0 {
				f.update()
			}
		}
		f.update()
		want := follow()
		for i, o := range all {
			if there[i] {
				want.Put(o)
			}
		}
		want.update()
		if got, want := f.text(t), want.text(t); got != want {
			t.Fatalf("seed %d\n got:\n%s\nwant:\n%s", seed, got, want)
		}
	}
}

// TestWorld_Removals: a model without objects reports nothing.
func TestWorld_Removals(t *testing.T) {
	f := follow()
	var all []runtime.Object
	for _, file := range files(t) {
		all = append(all, objects(t, file)...)
	}
	for _, o := range all {
		f.Put(o)
	}
	f.update()
	for _, o := range all {
		f.Remove(o)
	}
	f.update()
	if got := f.text(t); got != "" || len(f.clusters) > 0 || len(f.ClustersIn("")) > 0 {
		t.Errorf("%d clusters, %s, want nothing", len(f.clusters), got)
	}
}

func TestWorld_HiddenNamespace(t *testing.T) {
	f := follow()
	f.Hide("shop")
	for _, o := range objects(t, "service.yaml") {
		f.Put(o)
	}
	f.update()
	if got := f.text(t); got != "" {
		t.Errorf("model reports %s, want nothing", got)
	}
	f.Show("shop")
	f.update()
	if got := f.text(t); !strings.Contains(got, "greeter.shop") {
		t.Errorf("model reports %q, want greeter.shop", got)
	}
}

// TestWorld_InvalidServiceEntry: invalid input affects only itself.
func TestWorld_InvalidServiceEntry(t *testing.T) {
	const meta = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: { name: a, namespace: shop }\n"
	good := meta + "spec: { hosts: [a.example], resolution: STATIC, ports: [{ number: 80, name: http, protocol: HTTP }], endpoints: [{ address: 10.0.0.1 }] }"
	f := follow()
	f.Put(object(t, good))
	f.update()
	before := f.text(t)
	f.Put(object(t, meta+"spec: { hosts: 7 }"))
	f.update()
	if got := f.text(t); !strings.HasPrefix(got, before) || !strings.Contains(got, "unknown a.example:80: its spec cannot be read") {
		t.Errorf("got:\n%s", got)
	}
	f.Put(object(t, good))
	f.update()
	if got := f.text(t); got != before {
		t.Errorf("got:\n%s\nwant:\n%s", got, before)
	}
}

// TestWorld_KeyOwner: Pods with the keys of others that come and go do not change
// keys.
func TestWorld_KeyOwner(t *testing.T) {
	f := follow()
	var pods []*core.Pod
	for _, o := range objects(t, "service.yaml") {
		if p, ok := o.(*core.Pod); ok {
			pods = append(pods, p)
			p.Annotations = pods[0].Annotations
		}
		f.Put(o)
	}
	f.update()
	f.Remove(pods[1])
	if f.Update().Keys {
		t.Error("Update().Keys = true, want false for a Pod with the keys of the others")
	}
	mapping, _ := f.Mapping()
	key := naming.ServiceKey{Category: naming.Providers, Interface: "api.Greeter", Version: "1.0", Group: "g"}
	want := naming.HostAddress{Host: "greeter.shop.svc.cluster.local", Port: 20880}
	if got := mapping.Hosts(key); !slices.Equal(got, []naming.HostAddress{want}) {
		t.Errorf("Hosts() = %v, want %v", got, want)
	}
	if got := mapping.Client(key, want); got != "service shop/greeter" {
		t.Errorf("Client() = %s, want service shop/greeter", got)
	}
}
