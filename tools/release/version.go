package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
)

// writeVersion sets the released version in every file of the clone that names a version of this
// repository's modules.
func (r *release) writeVersion(ctx context.Context, now time.Time) error {
	files, err := git(ctx, r.clone(), "ls-files", "CHANGELOG.md", "README.md", "docs/*.md", "go.mod", "*/go.mod")
	if err != nil {
		return err
	}
	for file := range strings.FieldsSeq(files) {
		path := filepath.Join(r.clone(), file)
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%w", err)
		}
		var written string
		switch filepath.Base(file) {
		case "CHANGELOG.md":
			written, err = releaseNotes(string(text), r.version, now)
		case "go.mod":
			written, err = requireVersion(file, text, r.version)
		default:
			written = nameVersion(string(text), r.version)
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(written), 0o600); err != nil {
			return fmt.Errorf("%w", err)
		}
	}
	return nil
}

// requireVersion sets the required version of this repository's modules in a go.mod.
func requireVersion(name string, text []byte, version string) (string, error) {
	file, err := modfile.Parse(name, text, nil)
	if err != nil {
		return "", fmt.Errorf("%w", err)
	}
	changed := false
	for _, required := range file.Require {
		if path := required.Mod.Path; path == root || strings.HasPrefix(path, root+"/") {
			if err := file.AddRequire(path, version); err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
			changed = true
		}
	}
	if !changed {
		return string(text), nil
	}
	written, err := file.Format()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return string(written), nil
}

// nameVersion sets the version wherever a document names one of this repository's modules with a
// version, as go.mod and go get do.
func nameVersion(text, version string) string {
	return regexp.MustCompile(`(`+regexp.QuoteMeta(root)+`[\w/]*[ @])v\d+\.\d+\.\d+(-[\w.]+)?`).ReplaceAllString(text, "${1}"+version)
}

const unreleased = "\n## Unreleased\n"

// releaseNotes sets the version and date of the unreleased section of a changelog.
func releaseNotes(text, version string, now time.Time) (string, error) {
	before, after, found := strings.Cut(text, unreleased)
	notes, _, _ := strings.Cut(after, "\n## ")
	if !found || strings.TrimSpace(notes) == "" {
		return "", errors.New("CHANGELOG.md: no unreleased section")
	}
	return before + unreleased + "\n## " + version + " - " + now.Format(time.DateOnly) + "\n" + after, nil
}
