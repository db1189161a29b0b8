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

// HasDependencies is a Format whose entries depend on documents, which are stored in
// configurations or returned by providers.
type HasDependencies interface {
	Format

	// Dependencies returns the documents that entries depend on.
	Dependencies(entries []registry.Entry) []metadata.Ref

	// Config returns the configuration that stores a document. It has no id if Nacos does
	// not store the document.
	Config(entry registry.Entry) (at metadata.NacosConfig, element string)
}

// fetchesAtATime is the number of configurations that are read at a time.
const fetchesAtATime = 16

// documents are the documents on which instances depend. The loop of the reader owns them.
type documents struct {
	*dependency.Fetcher // of one connection

	set       *dependency.Set
	formats   map[string]HasDependencies // by kind
	elsewhere bool                       // no document is stored in this Nacos
}

func newDocuments(o SourceOptions, table *registry.Table) documents {
	set := dependency.NewSet(dependency.Options{
		Retry: registry.Backoff{Min: time.Second, Max: 10 * time.Second}, Asker: o.Asker, Room: table.Reserve,
	})
	d := documents{elsewhere: o.Elsewhere, formats: make(map[string]HasDependencies), set: set}
	for _, f := range o.Formats {
		if dependent, ok := f.(HasDependencies); ok {
			d.formats[f.Kind()] = dependent
		}
	}
	return d
}

func (d *documents) connect(cn *conn) {
	config := func(ref metadata.Ref) metadata.NacosConfig {
		at, _ := d.formats[ref.Group.Kind].Config(registry.Entry{Group: ref.Group, Key: ref.Key})
		return at
	}
	d.Fetcher = dependency.NewFetcher(d.set, time.Now(), dependency.Lane{
		Limit: fetchesAtATime,
		Has:   func(ref metadata.Ref) bool { return !d.elsewhere && config(ref).ID != "" },
		Fetch: func(ctx context.Context, ref metadata.Ref) (string, error) { return fetchStored(ctx, cn, config(ref)) },
	})
}

// fetchStored reads a document. If its revision is invalid as a group, the document cannot be
// stored. The refusal of a server is not final, because it may allow the read later.
func fetchStored(ctx context.Context, over asker, at metadata.NacosConfig) (string, error) {
	if err := metadata.CheckNacosService(at.Namespace, at.Group, "any"); err != nil {
		return "", fmt.Errorf("%w: its revision is not a name that Nacos accepts: %w", registry.ErrRefused, err)
	}
	text, there, err := readConfig(ctx, over, at)
	if err == nil && !there {
		return "", fmt.Errorf("configuration %s of group %s %w", at.ID, at.Group, dependency.ErrNotHere)
	}
	if errors.Is(err, registry.ErrRefused) {
		err = errors.New(err.Error())
	}
	return text, err
}

// Document returns a document that is stored as a configuration. The error wraps
// dependency.ErrMissing if the document is not stored.
func (c *Client) Document(ctx context.Context, at metadata.NacosConfig) (string, error) {
	return fetchStored(ctx, c, at)
}

// require requires the documents on which instances depend. It reports whether a format may
// depend on documents.
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

// unread reports whether a document was neither received nor refused yet.
func (d *documents) unread(groups []formatGroup) bool {
	return slices.ContainsFunc(groups, func(g formatGroup) bool { return d.set.Unread(g.group) })
}

// unknown adds the scopes of groups with documents that are unknown.
func (d *documents) unknown(groups []formatGroup, to map[string]error) {
	for _, g := range groups {
		if dependent, ok := g.format.(HasDependencies); ok {
			if err := d.set.Unknown(g.group); err != nil {
				to[metadata.ScopeOf(dependent, g.group)] = err
			}
		}
	}
}
