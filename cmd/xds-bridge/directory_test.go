package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/metadata"
)

// A directoryWorld is a ZooKeeper of which two bridges keep a service each as a file.
type directoryWorld struct {
	*world

	files string
}

func newDirectoryWorld(t *testing.T) *directoryWorld {
	t.Helper()
	w := &directoryWorld{newWorld(t), t.TempDir()}
	for _, name := range []string{"greeter", "orders"} {
		node := fmt.Sprintf(`{"id":"1","name":%q,"version":"v1","endpoints":["grpc://10.0.0.1:9000"]}`, name)
		if err := w.zk.Put("/microservices/"+name+"/1", []byte(node)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// by returns the file of a configuration of an owner.
func (w *directoryWorld) by(owner string) string {
	const bridge = "  - { name: %[1]s, from: zk, to: mesh, formats: [kratos], select: { include: [%[1]s] } }\n"
	return w.file(owner+".yaml", "owner: "+owner+fmt.Sprintf(`
registries:
  mesh: { kubernetes: { import: { directory: %q, subsetLabel: version } } }
  zk: { zookeeper: { servers: [%q] } }
bridges:
`, w.files, w.zkAt)+fmt.Sprintf(bridge, "greeter")+fmt.Sprintf(bridge, "orders"))
}

// marked returns what the files of services say that has a text in it.
func (w *directoryWorld) marked(text string) (services []string) {
	files, err := os.ReadDir(w.files)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range files {
		of, err := os.ReadFile(filepath.Join(w.files, f.Name()))
		if err != nil {
			w.t.Fatal(err)
		}
		if n := strings.Count(string(of), text); n > 0 {
			name, _, _ := strings.Cut(f.Name(), ".")
			services = append(services, fmt.Sprint(name, " ", n))
		}
	}
	return services
}

func (w *directoryWorld) want(text string, services ...string) {
	w.t.Helper()
	if got := w.marked(text); strings.Join(got, ", ") != strings.Join(services, ", ") {
		w.t.Errorf("%q is in %q, want %q", text, got, services)
	}
}

// A ServiceEntry has its mark in the head alone, which counts for its endpoints.
func TestKubernetes_Operations(t *testing.T) {
	t.Parallel()
	w := newDirectoryWorld(t)
	shop, bank := w.by("shop"), w.by("bank")
	do(t, "run", "--once", "-f", shop).want(t, exitOK)
	both := []string{"greeter 2", "orders 2"} // in the ServiceEntry and in its rule
	w.want(metadata.OwnerMark("shop"), both...)

	do(t, "adopt", "--from", "shop", "-f", bank).want(t, exitOK, "6 entries would be marked as owner bank", "whether a bridge of owner shop still runs cannot be seen")
	do(t, "adopt", "--from", "shop", "--yes", "-f", bank).want(t, exitOK, "6 entries")
	w.want(metadata.OwnerMark("shop"))
	w.want(metadata.OwnerMark("bank"), both...)
	do(t, "plan", "-f", bank).want(t, exitOK)

	do(t, "release", "--owner", "bank", "--yes", "-f", bank).want(t, exitOK, "6 entries")
	w.want(metadata.MarkAnnotation)
	w.want("ServiceEntry", "greeter 1", "orders 1")
	do(t, "adopt", "--unmarked", "--yes", "-f", shop).want(t, exitOK)
	w.want(metadata.OwnerMark("shop"), both...)
	do(t, "plan", "-f", shop).want(t, exitOK)

	do(t, "purge", "--bridge", "orders", "-f", shop).want(t, exitOK, "3 entries of bridge orders")
	do(t, "purge", "--bridge", "orders", "--yes", "-f", shop).want(t, exitOK, "3 entries of bridge orders")
	w.want("kind: ", "greeter 2")
	do(t, "purge", "--owner", "shop", "--yes", "-f", shop).want(t, exitOK, "3 entries of owner shop")
	w.want("kind: ")
}

// What a bridge left that is not configured any more is held under its name.
func TestKubernetes_RemovedBridge(t *testing.T) {
	t.Parallel()
	w := newDirectoryWorld(t)
	file := w.by("shop")
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	text := w.text(file)
	first, _, _ := strings.Cut(text, "  - { name: orders")
	w.file("shop.yaml", first)
	do(t, "plan", "-f", file).want(t, exitFindings, "is not configured")
}

// What an operator denied stays denied after a restart: a directory keeps records.
func TestKubernetes_DecisionsPersist(t *testing.T) {
	t.Parallel()
	w := newDirectoryWorld(t)
	node := func(i int) string { return fmt.Sprintf("/microservices/greeter/%d", i) }
	for i := range 5 {
		if err := w.zk.Put(node(i), fmt.Appendf(nil, `{"id":"%d","name":"greeter","version":"v1","endpoints":["grpc://10.0.0.%[1]d:9000"]}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	file := w.file("config.yaml", strings.ReplaceAll(w.text(w.by("shop")), " } }\n  - {", ` }, guard: { settle: 0s, lastEndpoint: 0s, atLeast: 1 } }
  - {`)+fmt.Sprintf("admin: { address: \"unix:%s/a\" }\ntelemetry: { address: \"127.0.0.1:0\" }\nlog: { format: json, level: debug }\n", w.dir))
	r := w.start(file)
	eventually(t, "in sync", func() bool { return do(t, "status", "-f", file).code == exitOK })
	for i := range 4 {
		w.zk.Delete(node(i + 1))
	}
	eventually(t, "held", func() bool { return do(t, "status", "-f", file).code == exitHeld })
	do(t, "deny", "--bridge", "greeter", "-f", file).want(t, exitHeld)
	var page admin.Page[admin.Hold]
	if err := json.Unmarshal([]byte(do(t, "holds", "-o", "json", "-f", file).out), &page); err != nil || len(page.Items) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	do(t, "deny", page.Items[0].ID, "-f", file).want(t, exitOK)
	kept := len(page.Items[0].Entries)
	eventually(t, "the denial is recorded", func() bool {
		files, _ := filepath.Glob(filepath.Join(w.files, ".xds-bridge.*.guard"))
		if len(files) != 1 {
			return false
		}
		text, _ := os.ReadFile(files[0])
		return strings.Contains(string(text), "denied")
	})
	r.stop()
	w.start(file)
	eventually(t, "it is denied still", func() bool {
		r := do(t, "holds", "-f", file)
		return r.code == exitOK && strings.Contains(r.out, "an operator denied it") && strings.Count(r.out, "10.0.0.") == kept
	})
	w.want("address: 10.0.0.", fmt.Sprint("greeter ", 1+kept), "orders 1")
}

// A host that somebody else's ServiceEntry has is not doubled, and is shown.
func TestKubernetes_HostConflict(t *testing.T) {
	t.Parallel()
	w := newDirectoryWorld(t)
	file := w.by("shop")
	theirs := filepath.Join(w.files, "theirs.yaml")
	text := "kind: ServiceEntry\nmetadata: { name: theirs, namespace: xds-bridge }\nspec: { hosts: [greeter.s-grpc.zk.bridge.internal] }\n"
	if err := os.WriteFile(theirs, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	do(t, "run", "--once", "-f", file).want(t, exitFindings, "theirs has that host and is not ours")
	w.want("kind: ServiceEntry", "orders 1", "theirs 1")
	do(t, "plan", "-f", file).want(t, exitFindings, "conflict")
	if err := os.Remove(theirs); err != nil {
		t.Fatal(err)
	}
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	if err := os.WriteFile(theirs, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	do(t, "run", "--once", "-f", file).want(t, exitFindings, "conflict")
	w.want("kind: ServiceEntry", "greeter 1", "orders 1", "theirs 1")
}
