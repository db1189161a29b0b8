package arch_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTree checks what a newcomer sees first: the directories, and a sentence about each package.
func TestTree(t *testing.T) {
	t.Run("the top has the directories that the documents name", func(t *testing.T) {
		for name := range strings.FieldsSeq("go.mod registry bridge metadata naming config cmd/xds-bridge plugins integration docker-compose.yml Makefile README.md") {
			if _, err := os.Stat(filepath.Join("../..", name)); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("every package has a comment", func(t *testing.T) {
		dirs := list(t, "-f", "{{if .GoFiles}}{{.Dir}}{{end}}", "./...")
		if len(dirs) < 30 {
			t.Fatalf("only %d packages were found", len(dirs))
		}
		for _, dir := range dirs {
			if !slices.ContainsFunc(sources(t, dir), documented) {
				t.Errorf("%s has no package comment", dir)
			}
		}
	})
}

func sources(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
}

// documented reports whether a file has the comment of its package.
func documented(file string) bool {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
	return err == nil && parsed.Doc != nil && strings.Contains(parsed.Doc.Text(), " ")
}
