package app

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

func TestOverlay(t *testing.T) {
	t.Parallel()
	g := registry.Group{Kind: "dubbo-interface", Namespace: "/dubbo", Name: "api.Orders"}
	entry := func(key, value string) registry.Entry { return registry.Entry{Group: g, Key: key, Value: value} }
	stored := memory.New(memory.Options{})
	stored.Set(registry.Stored{Entry: entry("a", "1"), Owner: "us", Live: true}, registry.Stored{Entry: entry("b", "1"), Owner: "else", Live: true})
	before := stored.Counts()
	observed := 0
	o := &overlay{real: stored, owner: "us", observe: func(registry.Change) { observed++ }, groups: make(map[registry.Group][]registry.Stored)}
	held, err := o.Read(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	change := registry.Change{Group: g, Delete: held[:1], Put: []registry.Write{{New: entry("c", "1")}}}
	if err := o.Write(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	after, err := o.Read(t.Context(), g)
	if err != nil || len(after) != 2 || after[0].Key != "b" || after[1].Key != "c" || after[1].Owner != "us" {
		t.Errorf("Read of the overlay = %+v, %v, want b and c of us", after, err)
	}
	if c := stored.Counts(); c.Writes != before.Writes || observed != 1 || len(stored.Entries()) != 2 {
		t.Errorf("Counts of the target = %+v, want no write and one observation", c)
	}
	if groups, err := o.Groups(t.Context()); err != nil || len(groups) != 1 {
		t.Errorf("Groups = %v, %v, want one", groups, err)
	}
}

// TestOverlay_Kinds shows that a dry run has the capabilities of the target of each kind,
// less those that concern writes.
func TestOverlay_Kinds(t *testing.T) {
	t.Parallel()
	for name, bridge := range map[string]string{
		"zookeeper":  "from: istiod, to: zookeeper, formats: [plain]",
		"nacos":      "from: istiod, to: nacos, formats: [plain]",
		"kubernetes": "from: zookeeper, to: kubernetes, formats: [plain]",
		"istiod":     "from: zookeeper, to: istiod, listen: ':1', formats: [plain]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var registries strings.Builder
			for kind, section := range sections() {
				fmt.Fprintf(&registries, "  %s: { %[1]s: %s }\n", kind, section)
			}
			file := filepath.Join(t.TempDir(), "config.yaml")
			write(t, file, "owner: shop\nregistries:\n"+registries.String()+"bridges: [{ name: b, "+bridge+" }]\n")
			b, err := newBuilder(&Program{File: file, Env: noEnv, LogOutput: io.Discard}, buildOptions{dryRun: true, errorsOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			defer b.runtime.close()
			target := b.runtime.targets[0].Target
			conformance.Wrapper(t, target, &overlay{real: target}, "Lost", "Admission", "VerifyAfter", "Watcher", "Overlap", "Leave")
		})
	}
}
