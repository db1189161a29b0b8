package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

// HasDependencies is a Format whose entries are decoded with documents, which are stored
// separately.
type HasDependencies interface {
	Format

	// Dependencies returns the documents that entries depend on.
	Dependencies(entries []registry.Entry) []metadata.Ref

	// Places returns the paths at which a document may be stored. The first path that
	// exists counts. A document that ZooKeeper does not store has none.
	Places(ref metadata.Ref) []string
}

// documents reads the documents on which the entries of roots depend. The goroutine of the
// source owns it.
type documents struct {
	roots     []*root
	set       *dependency.Set
	log       *slog.Logger
	elsewhere bool // no document is stored in this ZooKeeper

	// awaited has missing documents by the paths at which they may be created. Documents of
	// several groups may have one path.
	awaited map[string][]metadata.Ref

	// For one connection.
	watcher *watcher
	fetcher *dependency.Fetcher
}

func newDocuments(roots []*root, opts SourceOptions, room func(bytes int64) bool) *documents {
	return &documents{
		roots: roots, awaited: make(map[string][]metadata.Ref), log: opts.Log, elsewhere: opts.Elsewhere,
		set: dependency.NewSet(dependency.Options{
			Retry: registry.Backoff{Min: time.Second, Max: 30 * time.Second}, Asker: opts.Asker, Room: room,
		}),
	}
}

// connect continues to fetch documents over a new connection. The caller waits for the
// fetcher when the connection has ended.
func (d *documents) connect(w *watcher) {
	d.watcher = w
	d.fetcher = dependency.NewFetcher(d.set, time.Now(), dependency.Lane{
		Limit: readAhead, Has: func(ref metadata.Ref) bool { return len(d.places(ref)) > 0 }, Fetch: d.read,
	})
}

func (d *documents) places(ref metadata.Ref) []string {
	if d.elsewhere {
		return nil
	}
	for _, root := range d.roots {
		if dependent, ok := root.format.(HasDependencies); ok && root.has(ref.Group) {
			return dependent.Places(ref)
		}
	}
	return nil
}

// read reads a document. It watches for a document that does not exist, or whose node is
// still empty.
func (d *documents) read(ctx context.Context, ref metadata.Ref) (string, error) {
	var missing, denied, never error
	for _, path := range d.places(ref) {
		n, err := d.watcher.await(ctx, query{path: path, kind: ofData}, d.query)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			missing = dependency.ErrNotHere
		case err == nil:
			return string(n.data), nil
		case errors.Is(err, zk.ErrNoAuth):
			denied = fmt.Errorf("%s: %s", path, err.Error()) // not a refusal, because it may be allowed later
		case errors.Is(err, registry.ErrRefused):
			never = fmt.Errorf("%s: %w", path, err)
		default:
			return "", err
		}
	}
	return "", cmp.Or(denied, missing, never)
}

// Document returns a document that is stored at the first of several paths that exists. The
// error wraps dependency.ErrMissing if the document is not stored.
func (c *Client) Document(ctx context.Context, paths []string) (string, error) {
	for _, path := range paths {
		n, err := c.get(ctx, path)
		switch {
		case errors.Is(err, zk.ErrNoNode), err == nil && len(n.data) == 0:
		case errors.Is(err, registry.ErrRefused):
			return "", fmt.Errorf("%s: %s", path, err.Error()) // it may be allowed later
		case err != nil:
			return "", fmt.Errorf("%s: %w", path, err)
		default:
			return string(n.data), nil
		}
	}
	return "", fmt.Errorf("%v %w", paths, dependency.ErrMissing)
}

// query makes a query. A node without data counts as missing.
func (d *documents) query(ctx context.Context, q query) (node, error) {
	n, err := d.watcher.client.query(ctx, q)
	if err == nil && len(n.data) == 0 {
		err = zk.ErrNoNode
	}
	return n, err
}

// require requires the documents on which the entries of a parent depend.
func (d *documents) require(p *parentNode) {
	dependent, ok := p.root.format.(HasDependencies)
	if !ok {
		return
	}
	refs := dependent.Dependencies(p.entries(&p.content, p.names()))
	d.set.Want(time.Now(), p.group, refs)
	for _, ref := range refs {
		if d.set.Why(ref) == nil {
			continue
		}
		for _, path := range d.places(ref) {
			if !slices.Contains(d.awaited[path], ref) {
				d.awaited[path] = append(d.awaited[path], ref)
			}
		}
	}
}

// release releases the documents of a group.
func (d *documents) release(group registry.Group) { d.set.Want(time.Now(), group, nil) }

// decode decodes a parent with the known documents. It adds the scopes that are unknown
// because of missing documents.
func (d *documents) decode(
	dependent HasDependencies, p *parentNode, unknown map[string]error,
) ([]*registry.Service, []metadata.DecodeError) {
	services, failed := dependent.Decode(p.entries(&p.content, p.names()), d.set.Documents(p.group))
	undecodable := d.set.Undecodable(failed, dependent.Dependencies)
	p.lost = p.lost.Next(undecodable, p.reported.Services)
	p.lost.Unknown(undecodable, unknown)
	if err := d.set.Unknown(p.group); err != nil {
		unknown[metadata.ScopeOf(dependent, p.group)] = err
	}
	return services, failed
}

// fetch starts the fetches that are due, and sets a timer to the next one.
func (d *documents) fetch(ctx context.Context, due *time.Timer) {
	now := time.Now()
	d.fetcher.Start(ctx, now)
	if next, ok := d.set.Next(); ok {
		due.Reset(next.Sub(now))
	}
}

// accept stores the result of a fetch, and reports whether that changes anything.
func (d *documents) accept(result dependency.Result) bool {
	if !d.fetcher.Accept(time.Now(), result) {
		return false
	}
	if result.Err != nil {
		d.log.Warn("document of instances not fetched",
			"group", result.Ref.Group.String(), "key", result.Ref.Key, "err", result.Err)
	} else {
		for _, path := range d.places(result.Ref) {
			d.endAwait(path, func(ref metadata.Ref) bool { return ref == result.Ref })
		}
	}
	return true
}

// removeUnused removes the paths of documents that no entry depends on.
func (d *documents) removeUnused() {
	for path := range d.awaited {
		d.endAwait(path, func(ref metadata.Ref) bool { return !d.set.Wants(ref) })
	}
}

// endAwait removes documents that end the wait at a path.
func (d *documents) endAwait(path string, ends func(metadata.Ref) bool) {
	remaining := slices.DeleteFunc(d.awaited[path], ends)
	if d.awaited[path] = remaining; len(remaining) == 0 {
		delete(d.awaited, path)
	}
}

// changed schedules the documents whose nodes changed.
func (d *documents) changed(paths []string) {
	for _, path := range paths {
		for _, ref := range d.awaited[path] {
			d.set.Expect(time.Now(), ref)
		}
	}
}

// awaitAll waits until every document was fetched once, or for a timeout. Without it many
// services would be reported a moment after the others.
func (d *documents) awaitAll(ctx context.Context) error {
	timeout, due := time.NewTimer(documentsTimeout), time.NewTimer(0)
	defer timeout.Stop()
	defer due.Stop()
	for !d.set.Resolved() {
		d.fetch(ctx, due)
		select {
		case <-ctx.Done():
			return fmt.Errorf("zookeeper: %w", context.Cause(ctx))
		case <-timeout.C:
			return nil
		case <-due.C:
		case result := <-d.fetcher.Results():
			d.accept(result)
		}
	}
	return nil
}
