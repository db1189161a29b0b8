// Release prepares a release of the root module and of each plugin. It publishes nothing.
//
//	go run . -version v0.1.0 -out ../../dist
//
// The directory then has a clone with the commit and tags of the release, its modules as a module
// proxy serves them, binaries, their SBOMs, and checksums.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/mod/semver"
)

// root is the path of the module at the top.
const root = "github.com/xds-bridge/xds-bridge"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1) //nolint:gocritic // no deferred function matters
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	r := release{}
	flags.StringVar(&r.version, "version", "", "of the release, such as v0.1.0")
	flags.StringVar(&r.source, "source", "../..", "repository that is released, of which HEAD is released")
	flags.StringVar(&r.out, "out", "../../dist", "directory to make, which must not exist")
	platforms := flags.String("platforms", "linux/amd64 linux/arm64 darwin/amd64 darwin/arm64", "of the binaries")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w", err)
	}
	r.platforms = strings.Fields(*platforms)
	return r.prepare(ctx, out)
}

// release is the release to prepare.
type release struct {
	version   string
	source    string
	out       string
	platforms []string // GOOS/GOARCH
}

// clone returns the directory of the clone with the commit and the tags.
func (r *release) clone() string { return filepath.Join(r.out, "repository") }

func (r *release) prepare(ctx context.Context, out io.Writer) (err error) {
	if r.out, err = filepath.Abs(r.out); err != nil {
		return fmt.Errorf("%w", err)
	}
	if err := r.check(ctx); err != nil {
		return err
	}
	if _, err := git(ctx, r.source, "clone", "-q", ".", r.clone()); err != nil {
		return err
	}
	if err := r.writeVersion(ctx, time.Now().UTC()); err != nil {
		return err
	}
	modules, err := r.commit(ctx)
	if err != nil {
		return err
	}
	if err := r.publish(ctx, modules); err != nil {
		return err
	}
	for _, platform := range r.platforms {
		if err := r.build(ctx, platform); err != nil {
			return err
		}
	}
	if err := r.sum(); err != nil {
		return err
	}
	var tags []string
	for _, m := range modules {
		tags = append(tags, m.tag(r.version))
	}
	_, err = fmt.Fprintf(out, "%s is prepared in %s. Read git -C %s show, then publish it:\n\n  git -C %s push --atomic <remote> HEAD:<branch> %s\n",
		r.version, r.out, r.clone(), r.clone(), strings.Join(tags, " "))
	return err
}

// check returns what prevents the release, or nil.
func (r *release) check(ctx context.Context) error {
	if !semver.IsValid(r.version) || semver.Canonical(r.version) != r.version {
		return fmt.Errorf("-version must be a module version, such as v0.1.0 (got %q)", r.version)
	}
	if major := semver.Major(r.version); major != "v0" && major != "v1" {
		return fmt.Errorf("%s requires %s at the end of each module's path", r.version, major)
	}
	if _, err := os.Stat(r.out); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s already exists (%w): remove it", r.out, err)
	}
	changed, err := git(ctx, r.source, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("%s has uncommitted changes:\n%s", r.source, changed)
	}
	tags, err := git(ctx, r.source, "tag", "--list", semver.MajorMinor(r.version)+".*")
	if err != nil {
		return err
	}
	before := strings.Fields(tags)
	if slices.ContainsFunc(before, func(tag string) bool { return semver.Compare(tag, r.version) >= 0 }) {
		return fmt.Errorf("%s must be greater than every released version of its minor release: %s", r.version, strings.Join(before, " "))
	}
	return nil
}
