package arch_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFuzz_Corpora requires that each fuzz target has inputs in testdata/fuzz, so that every test run
// tries what fuzzing found.
func TestFuzz_Corpora(t *testing.T) {
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	seen := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range target.FindAllSubmatch(text, -1) {
			seen++
			corpus := filepath.Join(filepath.Dir(path), "testdata", "fuzz", string(m[1]))
			if files, err := os.ReadDir(corpus); err != nil || len(files) == 0 {
				t.Errorf("%s has no corpus: run it for a minute and keep some of what it found in %s", m[1], corpus)
			}
		}
		return nil
	})
	if err != nil || seen < 40 {
		t.Errorf("%d targets, %v", seen, err)
	}
}
