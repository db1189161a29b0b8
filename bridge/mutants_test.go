//go:build soak

package bridge_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A mutant is a change of the code that breaks a rule.
type mutant struct{ rule, file, old, new string }

func mutants() []mutant {
	return []mutant{
		{"what the source cannot tell stays", "way.go", "func cannotTell(err error) error {\n\tif err == nil {", "func cannotTell(err error) error {\n\tif true {"},
		{"a group that was never read has no count", "guards.go", "unread && it.readAt.IsZero() {", "unread && false {"},
		{"what is not stored yet is no baseline", "guards.go", "New: !d.Held", "New: false"},
		{"a record is stored before anything goes", "guards.go", "unstored := b.unstored[o.item.group]; unstored {", "unstored := b.unstored[o.item.group]; unstored && false {"},
		{"what is denied stays", "decision.go", "fate, what := guard.Denied,", "fate, what := guard.Free,"},
		{"what is approved goes", "decision.go", "fate, what = guard.Free,", "fate, what = guard.Denied,"},
		{"what an earlier process recorded is read first", "records.go", "return !r.kept || r.read", "return true"},
		{"all is read before anything is judged", "facts.go", "len(f.unread)+len(f.agenda.arrivals) == 0", "true"},
		{"a group is read after a call that failed", "outcome.go", "\tit.readAt = time.Time{}\n\tit.change.restore", "\tit.change.restore"},
		{"what a guard remembers is recorded", "records.go", "\t\tg.keep(recordGuard, name, list)", "\t\t_ = list"},
		{"what was written counts as held", "outcome.go", "\te.planner.Applied(o.change)\n", ""},
		{"a claim makes its group due", "engine.go", "if e.agenda.touch(it, now) {", "if false {"},
		{"what is missing is a candidate", "guards.go", "return guard.Missing", "return guard.Claimed"},
		{"what was let go makes its group due", "guards.go", "range r.Free {", "range r.Free[:0] {"},
		{"a group is read before it is written", "calls.go", "if !e.trusted(it, now) {", "if false {"},
		{"what is taken back is no claim", "guards.go", "Claim: guard.Claimed, New", "Claim: guard.Missing, New"},
	}
}

// TestEngine_MutantsAreFound runs the tests of this package against code that
// breaks one rule at a time.
func TestEngine_MutantsAreFound(t *testing.T) {
	for _, m := range mutants() {
		t.Run(m.rule, func(t *testing.T) {
			text, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(string(text), m.old) != 1 {
				t.Fatalf("%q is in %s %d times, want once", m.old, m.file, strings.Count(string(text), m.old))
			}
			dir := t.TempDir()
			changed, overlay := filepath.Join(dir, m.file), filepath.Join(dir, "overlay.json")
			original, err := filepath.Abs(m.file)
			if err != nil {
				t.Fatal(err)
			}
			list, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
			if err != nil {
				t.Fatal(err)
			}
			write(t, changed, strings.Replace(string(text), m.old, m.new, 1))
			write(t, overlay, string(list))
			out, err := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-count=1", "-vet=off", "-run", "^TestEngine_Schedules", ".").CombinedOutput()
			switch {
			case err == nil:
				t.Error("no test fails")
			case strings.Contains(string(out), "[build failed]"):
				t.Errorf("it does not compile:\n%s", out)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
