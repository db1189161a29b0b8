package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// marks returns the owner marks of the providers of the orders.
func (w *world) marks() []string {
	var marks []string
	for _, node := range w.providers("api.Orders") {
		_, mark, _ := strings.Cut(node, "xdsb%3D")
		if mark == "" {
			_, mark, _ = strings.Cut(node, "xdsb=")
		}
		marks = append(marks, mark)
	}
	return marks
}

// ownedBy returns a configuration of another owner.
func (w *world) ownedBy(owner, more string) string {
	text, err := os.ReadFile(w.config(fileOptions{bridge: quick, file: more}))
	if err != nil {
		w.t.Fatal(err)
	}
	return w.file(owner+".yaml", strings.Replace(string(text), "owner: shop", "owner: "+owner, 1))
}

func TestOwnership_ChangedOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.config(fileOptions{bridge: quick})
	do(t, "run", "--once", "-f", old).want(t, exitOK, "2 own entries")
	before := w.touched()
	audit := filepath.Join(w.dir, "audit.ndjson")
	file := w.ownedBy("shpo", "audit: { file: "+audit+" }")

	do(t, "run", "--once", "-f", file).want(t, exitUsage, `under owner "shop"`, "xds-bridge adopt -f "+file+" --from shop --yes", "xds-bridge release -f "+file+" --owner shop --yes")
	do(t, "run", "-f", file).want(t, exitUsage, `under owner "shop"`)
	sameNodes(t, before, w.touched())

	do(t, "adopt", "--from", "shop", "-f", file).want(t, exitOK, "2 entries would be marked as owner shpo; set --yes")
	sameNodes(t, before, w.touched())
	do(t, "adopt", "--from", "shop", "--yes", "-f", file).want(t, exitOK, "2 entries: marked as owner shpo")
	for _, mark := range w.marks() {
		if !strings.HasPrefix(mark, metadata.Fingerprint("shpo", metadata.OwnerLen)) {
			t.Errorf("mark %q", mark)
		}
	}
	after := w.touched()
	do(t, "run", "--once", "-f", file).want(t, exitOK, "2 own entries, 0 of others")
	sameNodes(t, after, w.touched())
	if names := w.zk.Children("/xds-bridge/shop"); len(names) > 0 {
		t.Errorf("of owner shop %q is remembered", names)
	}
	text, err := os.ReadFile(audit)
	if err != nil || !strings.Contains(string(text), `"action":"adopt"`) || !strings.Contains(string(text), `"subject":"shop","count":2`) {
		t.Errorf("audit: %s, %v", text, err)
	}
	// And changing it back by mistake is none either.
	do(t, "run", "--once", "-f", old).want(t, exitUsage, " --from shpo")
	do(t, "adopt", "--from", "shop", "-f", old).want(t, exitUsage, "another owner")
	do(t, "adopt", "-f", old).want(t, exitUsage, "one of --from")
	do(t, "adopt", "--unsigned", "-f", old).want(t, exitUsage, "ownerKeyFile")
}

func TestOwnership_ReleaseAndAdopt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.config(fileOptions{bridge: quick})
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	before := w.touched()
	do(t, "release", "--owner", "shop", "-f", file).want(t, exitOK, "2 entries would be left to nobody")
	sameNodes(t, before, w.touched())
	do(t, "release", "--owner", "shop", "--yes", "-o", "json", "-f", file).want(t, exitOK, `"done": true`)
	if marks := w.marks(); len(marks) != 2 || strings.Join(marks, "") != "" {
		t.Fatalf("marks %q", marks)
	}
	released := w.touched()
	do(t, "run", "--once", "-f", file).want(t, exitFindings, "0 own entries, 2 of others, 2 conflicts")
	for path, stat := range released {
		if strings.HasPrefix(path, "/dubbo") && w.touched()[path] != stat {
			t.Errorf("%s was touched", path)
		}
	}

	own := "/dubbo/api.Orders/providers/" + strings.Replace(w.providers("api.Orders")[0], "10.0.0.1", "10.0.0.9", 1)
	if err := w.zk.Put(own, nil); err != nil { // nothing that we would write
		t.Fatal(err)
	}
	do(t, "adopt", "--unmarked", "-f", file).want(t, exitOK, "2 entries would be marked")
	do(t, "adopt", "--unmarked", "--yes", "-f", file).want(t, exitOK, "2 entries: marked")
	do(t, "run", "--once", "-f", file).want(t, exitOK, "2 own entries, 1 of others")
	if _, ok := w.zk.Get(own); !ok {
		t.Error("an entry that we would not write was adopted")
	}
	do(t, "adopt", "--unmarked", "--target", "zkk", "-f", file).want(t, exitUsage, `"zkk" is no registry`)
	do(t, "release", "-f", file).want(t, exitUsage, "requires --owner")
}

func TestOwnership_KeyRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	do(t, "run", "--once", "-f", w.config(fileOptions{bridge: quick})).want(t, exitOK)
	keys := w.file("keys", "the first key of this deployment\n")
	file := w.config(fileOptions{bridge: quick, file: "ownerKeyFile: " + keys})

	do(t, "run", "--once", "-f", file).want(t, exitFindings, "0 own entries, 2 of others", "(not signed)")
	do(t, "adopt", "--unsigned", "--yes", "-f", file).want(t, exitOK, "2 entries")
	do(t, "run", "--once", "-f", file).want(t, exitOK, "2 own entries, 0 of others")
	before := w.touched()
	do(t, "run", "--once", "-f", file).want(t, exitOK)
	sameNodes(t, before, w.touched())

	forged := "/dubbo/api.Orders/providers/" + strings.Replace(w.providers("api.Orders")[0], "10.0.0.1", "10.0.0.9", 1)
	if err := w.zk.Put(forged, nil); err != nil {
		t.Fatal(err)
	}
	do(t, "run", "--once", "-f", file).want(t, exitOK, "2 own entries, 1 of others")
	if _, ok := w.zk.Get(forged); !ok {
		t.Error("an entry that somebody made with our mark was deleted")
	}

	signed := w.marks()[0]
	w.file("keys", "a second key, made a year later\nthe first key of this deployment\n")
	do(t, "run", "--once", "-f", file).want(t, exitOK, "2 own entries, 1 of others")
	if now := w.marks()[0]; now == signed || len(now) != len(signed) {
		t.Errorf("after the rotation %q, before it %q", now, signed)
	}
	w.file("keys", "short\n")
	do(t, "validate", file).want(t, exitUsage, "shorter than 16")
}
