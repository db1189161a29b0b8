package nacos

import (
	"context"
	"errors"
	"fmt"
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

	set     *dependency.Set
	formats map[string]HasDependencies // by kind
}

func newDocuments(formats []Format, asker dependency.Asker, table *registry.Table) documents {
	d := documents{formats: make(map[string]HasDependencies), set: dependency.NewSet(dependency.Options{
		Retry: registry.Backoff{Min: time.Second, Max: 10 * time.Second}, Asker: asker, Room: table.Beside,
	})}
	for _, f := range formats {
		if dependent, ok := f.(HasDependencies); ok {
			d.formats[f.Kind()] = dependent
		}
	}
	return d
}

// connect has documents fetched over a connection from now on.
func (d *documents) connect(cn *conn) {
	config := func(ref metadata.Ref) metadata.NacosConfig {
		at, _ := d.formats[ref.Group.Kind].Config(registry.Entry{Group: ref.Group, Key: ref.Key})
		return at
	}
	d.Fetcher = dependency.NewFetcher(d.set, time.Now(), dependency.Lane{
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
	text, there, err := readConfig(ctx, cn, at)
	if err == nil && !there {
		return "", fmt.Errorf("configuration %s of group %s %w", at.ID, at.Group, dependency.ErrMissing)
	}
	if errors.Is(err, registry.ErrRefused) {
		err = errors.New(err.Error())
	}
	return text, err
}

// require has what the instances of a service depend on fetched. It reports
// whether those of any format do.
func (d *documents) require(groups []formatGroup, instances []instance) (dependent bool) {
	for _, g := range groups {
		format, ok := g.format.(HasDependencies)
		if !ok {
			continue
		}
		dependent = true
		entries := make([]registry.Entry, 0, len(instances))
		for _, in := range instances {
			if in.err == nil {
				entries = append(entries, registry.Entry{Group: g.group, Key: in.key, Value: in.text})
			}
		}
		d.set.Want(time.Now(), g.group, format.Dependencies(entries))
	}
	return dependent
}

// unread reports whether instances of a service depend on documents of which
// nothing is known yet.
func (d *documents) unread(groups []formatGroup) bool {
	return slices.ContainsFunc(groups, func(g formatGroup) bool { return d.set.Unread(g.group) })
}

// unknown adds the services of which not all dependencies are known.
func (d *documents) unknown(groups []formatGroup, to map[string]error) {
	for _, g := range groups {
		if dependent, ok := g.format.(HasDependencies); ok {
			if err := d.set.Unknown(g.group); err != nil {
				to[metadata.ScopeOf(dependent, g.group)] = err
			}
		}
	}
}
