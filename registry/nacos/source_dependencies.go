package nacos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

// HasDependencies is a Format whose entries are understood only with what is in
// configurations, or is known to their providers alone.
type HasDependencies interface {
	Format

	// Dependencies names what has to be read beside the entries.
	Dependencies(entries []registry.Entry) []metadata.Ref

	// Config returns the configuration that stores it; without an id for what
	// Nacos does not store.
	Config(entry registry.Entry) (at metadata.NacosConfig, word string)
}

// storedAtATime is how many documents are read from configurations at a time.
const storedAtATime = 16

// documents are those that instances depend on.
type documents struct {
	*dependency.Fetcher // of one connection

	set *dependency.Set
}

func newDocuments(asker dependency.Asker, table *registry.Table) documents {
	return documents{set: dependency.NewSet(dependency.Options{
		Retry: registry.Backoff{Min: time.Second, Max: 10 * time.Second}, Asker: asker, Room: table.Beside,
	})}
}

// depend fetches documents over the current connection from now on.
func (r *reading) depend() {
	cn, opts, formats := r.cn, r.opts, make(map[string]HasDependencies)
	for _, f := range opts.Formats {
		if dependent, ok := f.(HasDependencies); ok {
			formats[f.Kind()] = dependent
		}
	}
	config := func(ref metadata.Ref) metadata.NacosConfig {
		at, _ := formats[ref.Group.Kind].Config(registry.Entry{Group: ref.Group, Key: ref.Key})
		return at
	}
	r.documents.Fetcher = dependency.NewFetcher(r.documents.set, time.Now(),
		dependency.Lane{
			Limit: storedAtATime,
			Has:   func(ref metadata.Ref) bool { return config(ref).ID != "" },
			Fetch: func(ctx context.Context, ref metadata.Ref) (string, error) { return stored(ctx, cn, config(ref)) },
		})
}

// stored reads a document. One whose revision no server takes for the name of a
// group cannot be stored anywhere; what a server refuses it may permit later.
func stored(ctx context.Context, cn *conn, at metadata.NacosConfig) (string, error) {
	if err := metadata.CheckNacosService(at.Namespace, at.Group, "any"); err != nil {
		return "", fmt.Errorf("%w: its revision is no name that Nacos takes: %w", registry.ErrRefused, err)
	}
	text, there, err := configOf(ctx, cn, at)
	if err == nil && !there {
		return "", fmt.Errorf("configuration %s of group %s %w", at.ID, at.Group, dependency.ErrMissing)
	}
	if errors.Is(err, registry.ErrRefused) {
		err = errors.New(err.Error())
	}
	return text, err
}

// requireDocuments makes what the instances of a service depend on be fetched.
func (r *reading) requireDocuments(w *watchedService) {
	for _, h := range w.groups {
		dependent, ok := h.format.(HasDependencies)
		if !ok {
			continue
		}
		entries := make([]registry.Entry, 0, len(w.instances))
		for _, in := range w.instances {
			if in.err == nil {
				entries = append(entries, registry.Entry{Group: h.group, Key: in.key, Value: in.text})
			}
		}
		r.documents.set.Want(time.Now(), h.group, dependent.Dependencies(entries))
		r.marksOutdated = true
	}
}

// unread reports whether instances of a service depend on documents of which
// nothing is known yet.
func (r *reading) unread(w *watchedService) bool {
	return slices.ContainsFunc(w.groups, func(h formatGroup) bool { return r.documents.set.Unread(h.group) })
}

// fetched takes in a document, or why it cannot be had.
func (r *reading) fetched(res dependency.Result) {
	changed := r.documents.Accept(time.Now(), res)
	w := r.watched[keyOf(res.Ref.Group)]
	if w == nil || !changed {
		return // forgotten meanwhile, or as before
	}
	if res.Err != nil {
		r.log.Warn("a document that instances depend on cannot be had", "group", res.Ref.Group.String(), "key", res.Ref.Key, "err", res.Err)
	}
	r.marksOutdated = true
	r.rebuild(w)
}

// addUnknown adds the services of which not all is known that they depend on.
func (r *reading) addUnknown(w *watchedService, to map[string]error) {
	maps.Copy(to, w.refused)
	for _, h := range w.groups {
		if dependent, ok := h.format.(HasDependencies); ok {
			if err := r.documents.set.Unknown(h.group); err != nil {
				to[metadata.ScopeOf(dependent, h.group)] = err
			}
		}
	}
}
