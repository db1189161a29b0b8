package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

// codec returns one that writes for an owner.
func codec(t *testing.T, owner string, vips netip.Prefix) *serviceentry.Codec {
	t.Helper()
	c, err := serviceentry.New(serviceentry.Options{
		Hosts: naming.MeshHosts{Registry: "zk", Suffix: "bridge.internal"}, Namespace: namespace,
		Mark: metadata.NewMark(owner, "b"), VIPs: vips, ExportTo: []string{"shop"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

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

func encode(t *testing.T, c *serviceentry.Codec, s *registry.Service) []registry.Entry {
	t.Helper()
	entries, err := c.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// bring writes the change from the stored entries of a group to others.
func bring(ctx context.Context, target *kubernetes.Target, owner string, group registry.Group, want []registry.Entry) error {
	held, err := target.Read(ctx, group)
	if err != nil {
		return err
	}
	c := registry.Change{Group: group, Want: want}
	for _, h := range held {
		i := slices.IndexFunc(want, func(e registry.Entry) bool { return e.Key == h.Key })
		switch {
		case i < 0 && h.Owner == metadata.OwnerMark(owner):
			c.Delete = append(c.Delete, h)
		case i >= 0 && want[i] != h.Entry:
			c.Put = append(c.Put, registry.Write{New: want[i], Old: &h})
		}
	}
	for _, e := range want {
		if !slices.ContainsFunc(held, func(h registry.Stored) bool { return h.Key == e.Key }) {
			c.Put = append(c.Put, registry.Write{New: e})
		}
	}
	if c.Empty() {
		return nil
	}
	return target.Write(ctx, c)
}

func entriesOf(t *testing.T, target *kubernetes.Target, group registry.Group) (all []registry.Entry) {
	t.Helper()
	held, err := target.Read(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range held {
		all = append(all, h.Entry)
	}
	return all
}

func TestTarget_RoundTrip(t *testing.T) {
	t.Parallel()
	dir, vips := t.TempDir(), netip.MustParsePrefix("240.64.0.0/12")
	target := kubernetes.NewTarget(kubernetes.NewDirectory(dir), kubernetes.Options{Owner: "me", Namespace: namespace, VIPs: vips})
	dubbo := &registry.Service{
		Name: "dubbo:api.A", Protocol: "tri", Endpoints: service("a", 2).Endpoints,
		Interfaces: []registry.Interface{{Name: "api.A", Version: "1.0", Group: "g"}},
	}
	for _, s := range []*registry.Service{service("greeter", 3), service("empty", 0), dubbo} {
		want := encode(t, codec(t, "me", vips), s)
		if err := bring(t.Context(), target, "me", want[0].Group, want); err != nil {
			t.Fatal(err)
		}
		if got := entriesOf(t, target, want[0].Group); !slices.Equal(got, want) {
			t.Errorf("Read(%s) =\n%v\nwant\n%v", s.Name, got, want)
		}
		groups, err := target.Groups(t.Context())
		if err != nil || !slices.Contains(groups, want[0].Group) {
			t.Errorf("Groups = %v, %v, want %v in it", groups, err, want[0].Group)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, encode(t, codec(t, "me", vips), service("greeter", 3))[0].Group.Name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "greeter.yaml")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		_ = os.WriteFile(golden, text, 0o644)
	}
	if want, _ := os.ReadFile(golden); string(want) != string(text) {
		t.Errorf("the file is\n%s\nwant\n%s", text, want)
	}
}

func TestTarget_KeepsForeignObjects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := kubernetes.NewDirectory(dir)
	ours := kubernetes.NewTarget(store, kubernetes.Options{Owner: "me", Namespace: namespace})
	theirs := kubernetes.NewTarget(store, kubernetes.Options{Owner: "other", Namespace: namespace})
	want := encode(t, codec(t, "other", netip.Prefix{}), service("greeter", 2))
	group := want[0].Group
	if err := bring(t.Context(), theirs, "other", group, want); err != nil {
		t.Fatal(err)
	}
	unmarked := "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: { name: plain.zk.bridge.internal, namespace: xds-bridge }\nspec: { hosts: [plain], ports: [] }\n"
	for file, text := range map[string]string{
		"plain.grpc.zk.bridge.internal.yaml": strings.ReplaceAll(unmarked, "plain.zk", "plain.grpc.zk"),
		"broken.yaml":                        "{",
		"route.yaml":                         "kind: VirtualService\nmetadata: { name: route, namespace: xds-bridge }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	groups, err := ours.Groups(t.Context())
	if err != nil || len(groups) != 2 {
		t.Errorf("Groups = %v, %v, want those of the two ServiceEntries that can be read", groups, err)
	}
	if _, err := ours.Read(t.Context(), registry.Group{Kind: serviceentry.Kind, Namespace: namespace, Name: "broken"}); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("Read(broken) = %v, want a refusal", err)
	}
	for _, g := range groups {
		g.Kind = serviceentry.Kind
		for _, e := range [][]registry.Entry{encode(t, codec(t, "me", netip.Prefix{}), service("greeter", 1)), nil} {
			for i := range e {
				e[i].Group = g
			}
			held, _ := ours.Read(t.Context(), g)
			c := registry.Change{Group: g, Want: e, Delete: held}
			for _, x := range e {
				c.Put = append(c.Put, registry.Write{New: x})
			}
			if err := ours.Write(t.Context(), c); len(c.Put)+len(c.Delete) > 0 && !errors.Is(err, registry.ErrRefused) {
				t.Errorf("Write(%s) = %v, want a refusal", g.Name, err)
			}
		}
	}
	if got := entriesOf(t, theirs, group); !slices.Equal(got, want) {
		t.Errorf("theirs is %v, want %v", got, want)
	}
}

func TestTarget_DistinctAddresses(t *testing.T) {
	t.Parallel()
	vips := netip.MustParsePrefix("240.64.0.0/28") // seven first choices
	o := kubernetes.Options{Owner: "me", Namespace: namespace, VIPs: vips}
	store := kubernetes.NewDirectory(t.TempDir())
	target := kubernetes.NewTarget(store, o)
	all := make(map[string]string)
	for i := range 8 {
		want := encode(t, codec(t, "me", vips), service(fmt.Sprint("s", i), 1))
		if i == 4 { // a restart
			target = kubernetes.NewTarget(store, o)
			if _, err := target.Groups(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := bring(t.Context(), target, "me", want[0].Group, want); err != nil {
			t.Fatal(err)
		}
		if got := entriesOf(t, target, want[0].Group); !slices.Equal(got, want) {
			t.Errorf("Read = %v, want %v", got, want)
		}
		object, err := store.Get(t.Context(), serviceentry.ObjectKind, namespace, want[0].Group.Name)
		if err != nil {
			t.Fatal(err)
		}
		if len(object.Spec.Addresses) == 1 {
			if other := all[object.Spec.Addresses[0]]; other != "" {
				t.Errorf("%s and %s have address %s, want one each", object.Metadata.Name, other, object.Spec.Addresses[0])
			}
			all[object.Spec.Addresses[0]] = object.Metadata.Name
		}
	}
	if len(all) < 7 {
		t.Errorf("%d of 8 services have an address, want at least 7: %v", len(all), all)
	}
}

func TestTarget_FullObject(t *testing.T) {
	t.Parallel()
	target := kubernetes.NewTarget(kubernetes.NewDirectory(t.TempDir()), kubernetes.Options{Owner: "me", Namespace: namespace, MaxObject: 3000})
	c := codec(t, "me", netip.Prefix{})
	few := encode(t, c, service("greeter", 10))
	if err := bring(t.Context(), target, "me", few[0].Group, few); err != nil {
		t.Fatal(err)
	}
	many := encode(t, c, service("greeter", 40))
	err := bring(t.Context(), target, "me", few[0].Group, many)
	refused, ok := errors.AsType[registry.Refused](err)
	if !ok || len(refused) != 30 {
		t.Fatalf("Write of 40 endpoints = %v, want a refusal of 30", err)
	}
	if got := entriesOf(t, target, few[0].Group); !slices.Equal(got, few) {
		t.Errorf("Read = %v, want the ten as before", got)
	}
	if err := bring(t.Context(), target, "me", few[0].Group, few[:6]); err != nil {
		t.Errorf("Write() without some endpoints = %v, want nil", err)
	}
}

func TestTarget_EndpointLimit(t *testing.T) {
	t.Parallel()
	target := kubernetes.NewTarget(kubernetes.NewDirectory(t.TempDir()), kubernetes.Options{Owner: "me", Namespace: namespace})
	want := encode(t, codec(t, "me", netip.Prefix{}), service("greeter", 4100))
	err := bring(t.Context(), target, "me", want[0].Group, want)
	refused, ok := errors.AsType[registry.Refused](err)
	if !ok || len(refused) != 4 {
		t.Fatalf("Write of 4100 endpoints = %v, want a refusal of 4", err)
	}
	if got := entriesOf(t, target, want[0].Group); len(got) != 1+4096 {
		t.Errorf("Read = %d entries, want a head and 4096 endpoints", len(got))
	}
	if err := bring(t.Context(), target, "me", want[0].Group, want[:4000]); err != nil {
		t.Errorf("Write() without some endpoints = %v, want nil", err)
	}
}

func TestTarget_ConcurrentAddresses(t *testing.T) {
	t.Parallel()
	vips := netip.MustParsePrefix("240.64.0.0/26") // 31 first choices
	store := kubernetes.NewDirectory(t.TempDir())
	target := kubernetes.NewTarget(store, kubernetes.Options{Owner: "me", Namespace: namespace, VIPs: vips})
	var writing sync.WaitGroup
	for i := range 20 {
		want := encode(t, codec(t, "me", vips), service(fmt.Sprint("s", i), 1))
		writing.Go(func() {
			if err := bring(t.Context(), target, "me", want[0].Group, want); err != nil {
				t.Error(err)
			}
		})
	}
	writing.Wait()
	objects, err := store.List(t.Context(), serviceentry.ObjectKind, namespace)
	if err != nil || len(objects) != 20 {
		t.Fatalf("List() = %d objects, %v, want 20", len(objects), err)
	}
	has := make(map[string]string)
	for _, o := range objects {
		at := strings.Join(o.Spec.Addresses, " ")
		if other := has[at]; other != "" {
			t.Errorf("%s and %s have address %s, want one each", o.Metadata.Name, other, at)
		}
		has[at] = o.Metadata.Name
	}
}

func TestDirectory_UnreadableFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := kubernetes.NewTarget(kubernetes.NewDirectory(dir), kubernetes.Options{Owner: "me", Namespace: namespace})
	want := encode(t, codec(t, "me", netip.Prefix{}), service("greeter", 1))
	group := want[0].Group
	if err := bring(t.Context(), target, "me", group, want); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, group.Name+".yaml")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const second = "---\nkind: VirtualService\n"
	for name, text := range map[string]string{
		"cut short":        string(whole[:len(whole)/2]) + "\n\t",
		"of two documents": string(whole) + second,
		"too large":        "# " + strings.Repeat("x", 5<<20),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if held, err := target.Read(t.Context(), group); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("a file %s reads as %v, %v, want a refusal", name, held, err)
		}
		if groups, err := target.Groups(t.Context()); err != nil || (len(groups) == 1) != strings.HasSuffix(text, second) {
			t.Errorf("Groups() with a file %s = %v, %v, want it only if it is readable", name, groups, err)
		}
		change := registry.Change{Group: group, Put: []registry.Write{{New: want[0]}, {New: want[1]}}, Want: want}
		if err := target.Write(t.Context(), change); !errors.Is(err, registry.ErrRefused) {
			t.Errorf("Write() over a file %s = %v, want a refusal", name, err)
		}
		if now, _ := os.ReadFile(path); string(now) != text {
			t.Errorf("a file %s is\n%s\nwant it unchanged", name, now)
		}
	}
}
