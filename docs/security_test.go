package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurity shows that every test that the page of threats names exists.
func TestSecurity(t *testing.T) {
	page, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // a file of this repository
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(code.String(), "func "+name[1]+"(") {
			t.Errorf("%s is no test", name[1])
		}
	}
	for _, m := range regexp.MustCompile("`(Fuzz\\w+)` in ((?:[a-z]+(?:/[a-z]+)*(?:, | and )?)+)").FindAllStringSubmatch(string(page), -1) {
		for _, folder := range regexp.MustCompile("[a-z]+(?:/[a-z]+)*").FindAllString(strings.ReplaceAll(m[2], " and ", ", "), -1) {
			if !strings.Contains(sources(t, folder), "func "+m[1]+"(") {
				t.Errorf("%s has no %s", folder, m[1])
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`).FindAllStringSubmatch(code.String(), -1) {
		if m[1] != "FuzzPlanner" && !strings.Contains(string(page), "`"+m[1]+"`") { // what it plans with has been decoded
			t.Errorf("%s is not told of", m[1])
		}
	}
}
