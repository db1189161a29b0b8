package main

import (
	"archive/zip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// next is the rehearsed version, which no file names.
const next = "v0.100.0"

// TestMain sets the author of commits, for machines on which git has none.
func TestMain(m *testing.M) {
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		_ = os.Setenv("GIT_"+who+"_NAME", "release") // fails for no such name
		_ = os.Setenv("GIT_"+who+"_EMAIL", "release@example.com")
	}
	os.Exit(m.Run())
}

func TestRelease_Prepared(t *testing.T) {
	t.Parallel()
	source := commitOfThisTree(t)
	dist := filepath.Join(t.TempDir(), "dist")
	if err := run(t.Context(), []string{"-version", next, "-source", source, "-out", dist, "-platforms", ""}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if changed, err := git(t.Context(), source, "status", "--porcelain"); err != nil || changed != "" {
		t.Errorf("the repository itself was changed: %s, %v", changed, err)
	}
	tags, err := git(t.Context(), filepath.Join(dist, "repository"), "tag", "--list", "--points-at", "HEAD")
	if err != nil || !strings.Contains(tags, "plugins/kratos/"+next) || len(strings.Fields(tags)) != 8 {
		t.Errorf("tags: %s, %v", tags, err)
	}
	versions := filepath.Join(dist, "proxy", "github.com", "xds-bridge", "xds-bridge", "plugins", "kratos", "@v")
	if list := read(t, filepath.Join(versions, "list")); list != next+"\n" {
		t.Errorf("versions %q", list)
	}
	if mod := read(t, filepath.Join(versions, next+".mod")); !strings.Contains(mod, root+" "+next+"\n") || strings.Contains(mod, "replace") {
		t.Errorf("%s", mod)
	}
	archive, err := zip.OpenReader(filepath.Join(versions, next+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = archive.Close() }()
	if _, err := archive.Open(root + "/plugins/kratos@" + next + "/LICENSE"); err != nil {
		t.Error(err)
	}
	sums := read(t, filepath.Join(dist, "SHA256SUMS"))
	if strings.Count(sums, ".zip\n") != 8 || strings.Contains(sums, "repository") {
		t.Errorf("%s", sums)
	}
	if page := read(t, filepath.Join(dist, "repository", "docs", "plugins", "kratos.md")); !strings.Contains(page, root+"/plugins/kratos "+next) {
		t.Error("its page names another version")
	}
}

func TestRelease_Exclusions(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	for _, args := range []string{"init -q", "commit -q --allow-empty -m first", "tag v0.1.0", "tag v0.2.1"} {
		if _, err := git(t.Context(), source, strings.Fields(args)...); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(version, want string) {
		t.Helper()
		err := run(t.Context(), []string{"-version", version, "-source", source, "-out", filepath.Join(t.TempDir(), "dist")}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", version, err)
		}
	}
	refused("", "must be a module version")
	refused("0.3.0", "must be a module version")
	refused("v2.0.0", "v2 at the end of each module's path")
	refused("v0.2.0", "must be greater than every released version of its minor release: v0.2.1")
	patch := &release{version: "v0.1.1", source: source, out: filepath.Join(t.TempDir(), "dist")}
	if err := patch.check(t.Context()); err != nil {
		t.Errorf("a patch of the minor release before: %v", err)
	}
	if err := os.WriteFile(filepath.Join(source, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("v0.3.0", "uncommitted changes")
}

// commitOfThisTree returns a repository with one commit: this tree, including uncommitted changes.
func commitOfThisTree(t *testing.T) string {
	t.Helper()
	files, err := git(t.Context(), "../..", "ls-files", "--cached", "--others", "--exclude-standard")
	if err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	for file := range strings.SplitSeq(files, "\n") {
		text, err := os.ReadFile(filepath.Join("../..", file))
		if os.IsNotExist(err) {
			continue // deleted but not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := write(filepath.Join(copied, file), text); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{"init -q", "add -A", "commit -q -m tree"} {
		if _, err := git(t.Context(), copied, strings.Fields(args)...); err != nil {
			t.Fatal(err)
		}
	}
	return copied
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
