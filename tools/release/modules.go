package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// dir is the directory of a released module; empty for the root module.
type dir string

func (f dir) path() string { return path.Join(root, string(f)) }

func (f dir) tag(version string) string { return path.Join(string(f), version) }

// commit commits the written files, tags the commit for each released module, the root and the
// plugins, and returns the directories of the modules.
func (r *release) commit(ctx context.Context) ([]dir, error) {
	if _, err := git(ctx, r.clone(), "commit", "-q", "-a", "-m", "release: "+r.version); err != nil {
		return nil, err
	}
	files, err := git(ctx, r.clone(), "ls-files", "plugins/*/go.mod")
	if err != nil {
		return nil, err
	}
	modules := []dir{""}
	for file := range strings.FieldsSeq(files) {
		modules = append(modules, dir(path.Dir(file)))
	}
	for _, m := range modules {
		if _, err := git(ctx, r.clone(), "tag", "-a", "-m", m.path()+" "+r.version, m.tag(r.version)); err != nil {
			return nil, err
		}
	}
	return modules, nil
}

// publish writes the files that a module proxy would serve for each tag, in the layout of
// GOPROXY=file://, and lists their hashes in the format of go.sum.
func (r *release) publish(ctx context.Context, modules []dir) error {
	text, err := git(ctx, r.clone(), "log", "-1", "--format=%cI")
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return fmt.Errorf("time of the commit: %w", err)
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{r.version, at.UTC()})
	if err != nil {
		return fmt.Errorf("%w", err)
	}
	var sums strings.Builder
	for _, m := range modules {
		sum, err := r.serve(m, info)
		if err != nil {
			return fmt.Errorf("%s: %w", m.path(), err)
		}
		sums.WriteString(sum)
	}
	return write(filepath.Join(r.out, "go.sum"), []byte(sums.String()))
}

// serve writes a module to the proxy and returns its lines of go.sum.
func (r *release) serve(m dir, info []byte) (sum string, err error) {
	escaped, err := module.EscapePath(m.path())
	if err != nil {
		return "", err
	}
	versions := filepath.Join(r.out, "proxy", filepath.FromSlash(escaped), "@v")
	mod, err := os.ReadFile(filepath.Join(r.clone(), string(m), "go.mod"))
	if err != nil {
		return "", err
	}
	var archive bytes.Buffer
	at := module.Version{Path: m.path(), Version: r.version}
	if err := zip.CreateFromVCS(&archive, at, r.clone(), m.tag(r.version), string(m)); err != nil {
		return "", err
	}
	zipped := filepath.Join(versions, r.version+".zip")
	err = errors.Join(
		write(filepath.Join(versions, "list"), []byte(r.version+"\n")),
		write(filepath.Join(versions, r.version+".info"), info),
		write(filepath.Join(versions, r.version+".mod"), mod),
		write(zipped, archive.Bytes()))
	if err != nil {
		return "", err
	}
	hash, err := dirhash.HashZip(zipped, dirhash.Hash1)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %s %s\n", m.path(), r.version, hash), nil
}

// write creates a file and its directory.
func write(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // to be published
		return fmt.Errorf("%w", err)
	}
	if err := os.WriteFile(name, content, 0o644); err != nil { //nolint:gosec // to be published
		return fmt.Errorf("%w", err)
	}
	return nil
}

// git runs git in a directory and returns its output.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	return command(ctx, dir, nil, append([]string{"git"}, args...)...)
}

// command runs a command and returns its output.
func command(ctx context.Context, dir string, environment []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // not from outside
	cmd.Dir, cmd.Env = dir, append(os.Environ(), environment...)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err, out, failure.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}
