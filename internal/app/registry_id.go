package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/kind"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A registryID identifies a registry in the paths of entries. ZooKeeper
// and Nacos keep an id of themselves, so that deployments that name them
// differently recognise each other's entries; one of the configuration goes
// before it. Once known it stays.
type registryID struct {
	name  string // of the registry in the configuration
	given string // by the configuration; empty: none
	key   string // of all that the id depends on
	log   *slog.Logger

	known chan struct{}
	id    string // written before known is closed

	kept atomic.Pointer[idKeeper] // nil: the registry keeps none; a reload replaces it

	mu  sync.Mutex
	err error // why it is not known yet
}

// An idKeeper is where a registry keeps its id, with the id to keep if it keeps none.
type idKeeper struct {
	*kind.IDStore
	offer string // empty in a dry run
}

// newRegistryID returns the identity of a registry; kept is nil for one that keeps no id.
func newRegistryID(name, given string, kept *idKeeper, log *slog.Logger) *registryID {
	r := &registryID{name: name, given: given, log: log, known: make(chan struct{}), err: errors.New("not read yet")}
	r.kept.Store(kept)
	if given != "" || kept == nil {
		r.set(cmp.Or(given, name))
	}
	return r
}

func (r *registryID) set(id string) {
	r.id = id
	r.mu.Lock()
	r.err = nil
	r.mu.Unlock()
	close(r.known)
}

// hop returns the text for the registry in a path, once its id is known.
func (r *registryID) hop() string { return metadata.Hop(r.id) }

// problem returns why the id is not known yet, nil once it is.
func (r *registryID) problem() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// idInterval is how often it is looked whether a registry still keeps its id.
const idInterval = time.Minute

// run implements component. It asks the registry until that has answered, and then checks
// the id at intervals: the next bridge would give a registry that was wiped another id,
// and loops through both would not be recognised.
func (r *registryID) run(ctx context.Context) error {
	if r.kept.Load() == nil {
		return nil
	}
	wait := registry.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	timer := time.NewTimer(0)
	defer timer.Stop()
	found, failures := "", 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		id, err := r.look(ctx, found)
		switch {
		case errors.Is(err, errNoID):
			return nil
		case err != nil:
			failures++
			timer.Reset(wait.Spread(failures))
		default:
			found, failures = id, 0
			timer.Reset(idInterval)
		}
	}
}

// errNoID says that a registry keeps no id for us, and will not.
var errNoID = errors.New("the registry keeps no id")

// look asks the registry once, and returns the id that it keeps, or found
// where that is unknown now. It returns errNoID where there is none to look
// after.
func (r *registryID) look(ctx context.Context, found string) (string, error) {
	kept := r.kept.Load()
	id, err := kept.Ask(ctx, r.offer(kept, found))
	switch {
	case found == "" && (errors.Is(err, registry.ErrRefused) || err == nil && id == ""):
		r.learn(id, kept.Where, err)
		return "", errNoID
	case err == nil && id != "" && id != found:
		r.learn(id, kept.Where, nil)
		return id, nil
	case err != nil && found == "" && r.given == "" && ctx.Err() == nil:
		r.mu.Lock()
		r.err = err
		r.mu.Unlock()
	}
	return found, err
}

// offer returns the id for a registry that keeps none: the one that it kept before, if
// that was found.
func (r *registryID) offer(kept *idKeeper, found string) string {
	if found == "" || r.given != "" || kept.offer == "" {
		return kept.offer
	}
	return r.id
}

// check reports what the registry keeps. That it is unreachable is reported by
// others.
func (r *registryID) check(ctx context.Context, f *preflight.Findings) {
	k := r.kept.Load()
	if k == nil {
		return
	}
	kept, err := k.Ask(ctx, "")
	switch {
	case errors.Is(err, registry.ErrRefused) && r.given == "":
		f.Warn("id", err.Error(), "let our user read and make "+k.Where+", or configure the same id wherever this registry is")
	case err != nil:
	case r.given != "" && kept != "" && kept != r.given:
		f.Warn("id", fmt.Sprintf("%s is configured, and %s keeps %s", r.given, k.Where, kept), "remove the one or change the other, or loops continue")
	case kept == "":
		f.Pass("id", "none is kept yet; the first run makes it at %s", k.Where)
	default:
		f.Pass("id", "%s, kept at %s", kept, k.Where)
	}
}

// learn adopts the id that the registry keeps, or records why it keeps none for us.
func (r *registryID) learn(kept, where string, refused error) {
	switch {
	case r.given != "" && kept != "" && kept != r.given:
		r.log.Warn("the id of the configuration is not the one that the registry keeps: other bridges may not recognise our entries, and loops continue; remove the one or change the other",
			"registry", r.name, "configured", r.given, "kept", kept, "where", where)
	case r.given != "":
	case r.id != "" && kept != r.id:
		r.log.Warn("the registry keeps another id than before: bridges that start now do not recognise our entries, and loops continue; write the one before into it, or restart this bridge",
			"registry", r.name, "before", r.id, "kept", kept, "where", where)
	case r.id != "":
	case refused != nil:
		r.log.Warn("the registry's own id can neither be read nor made, its name in this file is used instead: let our user make it, or configure the same id wherever this registry is",
			"registry", r.name, "where", where, "err", refused)
		r.set(r.name)
	default:
		r.set(cmp.Or(kept, r.name)) // none in a dry run, before a first run
	}
}

func (r *registryID) wait(ctx context.Context) error {
	select {
	case <-r.known:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("id of %s: %w", r.name, ctx.Err())
	}
}

// routeBetween returns the route from one registry into another, which is known once
// both ids are.
func routeBetween(from, to *registryID) func() metadata.Route {
	return func() metadata.Route { return metadata.Route{From: from.hop(), To: to.hop()} }
}
