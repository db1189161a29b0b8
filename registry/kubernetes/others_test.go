package kubernetes_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubernetes"
)

// TestTarget_DoublesNoHost: a host of another's ServiceEntry under another name is not
// written beside it; one that is there already is kept up to date, and is a conflict.
func TestTarget_DoublesNoHost(t *testing.T) {
	t.Parallel()
	codec := subsetCodec(t, "")
	want := encode(t, codec, service("greeter", 2))
	group := want[0].Group
	another := func(name string) serviceentry.Object {
		return serviceentry.Object{
			APIVersion: serviceentry.APIVersion, Kind: serviceentry.ObjectKind, Metadata: serviceentry.ObjectMeta{Name: name, Namespace: namespace},
			Spec: serviceentry.ObjectSpec{Hosts: []string{"first.internal", group.Name}, Ports: []serviceentry.Port{{Number: 80, Name: "http", Protocol: "HTTP"}}},
		}
	}
	w, dir := newAPIWorld(t), t.TempDir()
	file := func(name, file string) func() error {
		return func() error {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
				return err
			}
			text := "kind: ServiceEntry\nmetadata: { name: " + name + ", namespace: " + namespace + " }\nspec: { hosts: [" + group.Name + "] }\n"
			return os.WriteFile(filepath.Join(dir, file), []byte("kind: Sidecar\n---\n"+text), 0o600)
		}
	}
	directory := kubernetes.NewTarget(kubernetes.NewDirectory(dir), kubernetes.Options{Owner: "me", Namespace: namespace, Rules: true})
	for name, tt := range map[string]struct {
		target *kubernetes.Target
		begin  func() error
		end    func() error
	}{
		"by the API": {w.target.Target, func() error { return w.Put("serviceentries", another("theirs")) }, func() error {
			w.Delete("serviceentries", namespace, "theirs")
			return nil
		}},
		"in a file":              {directory, file("theirs", "theirs.yaml"), func() error { return os.Remove(filepath.Join(dir, "theirs.yaml")) }},
		"in a .yml file":         {directory, file("theirs", "theirs.yml"), func() error { return os.Remove(filepath.Join(dir, "theirs.yml")) }},
		"in a subdirectory":      {directory, file("theirs", "a/b/theirs.yaml"), func() error { return os.RemoveAll(filepath.Join(dir, "a")) }},
		"of its name, below":     {directory, file(group.Name, "a/"+group.Name+".yaml"), func() error { return os.RemoveAll(filepath.Join(dir, "a")) }},
		"of its name, as .yml":   {directory, file(group.Name, group.Name+".yml"), func() error { return os.Remove(filepath.Join(dir, group.Name+".yml")) }},
		"of its name, elsewhere": {directory, file(group.Name, "all.yaml"), func() error { return os.Remove(filepath.Join(dir, "all.yaml")) }},
	} {
		list := func() []registry.Group {
			groups, err := tt.target.Groups(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return slices.DeleteFunc(groups, func(g registry.Group) bool { return g != group })
		}
		if err := tt.begin(); err != nil {
			t.Fatal(err)
		}
		if got := list(); len(got) != 0 {
			t.Errorf("%s: Groups() = %v, want none", name, got)
		}
		held, err := tt.target.Read(t.Context(), group)
		if err != nil || len(held) != 1 || held[0].Key != serviceentry.HeaderKey || held[0].Owner != "" {
			t.Errorf("%s: Read = %v, %v, want a head without an owner", name, held, err)
		}
		c := registry.Change{Group: group, Want: want, Put: []registry.Write{{New: want[1]}, {New: want[2]}}} // as the planner has it
		if err := tt.target.Write(t.Context(), c); !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "has that host and is not ours") {
			t.Errorf("%s: Write = %v, want a refusal", name, err)
		}
		if err := tt.end(); err != nil {
			t.Fatal(err)
		}
		list()
		if err := bring(t.Context(), tt.target, "me", group, want); err != nil {
			t.Errorf("%s: Write() once it is gone = %v, want nil", name, err)
		}

		if err := tt.begin(); err != nil {
			t.Fatal(err)
		}
		list()
		held, err = tt.target.Read(t.Context(), group)
		if err != nil || len(held) != 4 || held[0].Key != held[1].Key {
			t.Errorf("%s: Read = %v, %v, want our entry and theirs", name, held, err)
		}
		c = registry.Change{Group: group, Delete: slices.DeleteFunc(held, func(h registry.Stored) bool { return h.Key != want[1].Key })}
		if err := tt.target.Write(t.Context(), c); err != nil {
			t.Errorf("%s: Write() of what is stored = %v, want nil", name, err)
		}
		if err := tt.end(); err != nil {
			t.Fatal(err)
		}
		list()
		if got := entriesOf(t, tt.target, group); len(got) != 2 {
			t.Errorf("%s: it holds %v, want an endpoint less", name, got)
		}
		if err := bring(t.Context(), tt.target, "me", group, nil); err != nil {
			t.Error(err)
		}
	}
}
