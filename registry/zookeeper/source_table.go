package zookeeper

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// readAll reads everything and replaces the table.
func (r *sourceRun) readAll(ctx context.Context) error {
	r.tree.events.reset()
	r.reread = false
	var gone []*parentNode
	for _, root := range r.roots {
		goneOfRoot, err := r.readRoot(ctx, root)
		if err != nil {
			return err
		}
		gone = append(gone, goneOfRoot...)
	}
	r.documents.removeUnused()
	if !r.complete {
		if err := r.documents.awaitAll(ctx); err != nil {
			return err
		}
	}
	for _, p := range gone {
		r.remove(p)
	}
	r.replaceTable(gone)
	r.complete = true
	r.failures = 0
	return nil
}

// RootAbsent is the message about a root that does not exist.
const RootAbsent = "does not exist, so that nothing is read there; " +
	"check root of the bridge's formats or reads, unless no provider has registered yet"

// parents returns the paths of the parents of a root, and reports whether it exists.
func (r *sourceRun) parents(ctx context.Context, root *root) ([]string, error) {
	paths, err := r.tree.parents(ctx, root)
	if err == nil {
		absent := registry.Omission{}
		if !root.existed {
			absent = registry.Omission{Reason: RootAbsent, Cause: registry.Unasked}
		}
		r.table.Omit(root.path, absent)
	}
	return paths, err
}

// readRoot reads all parents of a root, or the known ones if the root cannot be listed. It
// returns the known parents that no longer exist.
func (r *sourceRun) readRoot(ctx context.Context, root *root) (gone []*parentNode, err error) {
	paths, err := r.parents(ctx, root)
	switch {
	case isLocal(err):
		r.rootFailed(root, err)
		paths = slices.Sorted(maps.Keys(root.parents))
	case err != nil:
		return nil, err
	default:
		root.err = nil
	}
	jobs := make([]*job, 0, len(paths))
	for _, p := range paths {
		jobs = append(jobs, &job{parent: root.parent(p), list: true, full: true})
	}
	return root.without(paths), r.read(ctx, root, jobs)
}

// without returns the known parents of a root whose paths are not in a sorted list.
func (r *root) without(paths []string) (gone []*parentNode) {
	for path, p := range r.parents {
		if _, exists := slices.BinarySearch(paths, path); !exists {
			gone = append(gone, p)
		}
	}
	return gone
}

// readNew lists the parents of a root. It reads the new ones, and removes those that no
// longer exist.
func (r *sourceRun) readNew(ctx context.Context, root *root) error {
	paths, err := r.parents(ctx, root)
	if isLocal(err) {
		r.rootFailed(root, err)
		return nil
	}
	if err != nil {
		return err
	}
	if root.err != nil {
		r.reread = true // parents that are missing now were not reported as deleted
		return nil      //nolint:nilerr // the error of an earlier list
	}
	var jobs []*job
	for _, p := range paths {
		if root.parents[p] == nil {
			jobs = append(jobs, &job{parent: root.parent(p), list: true, full: true})
		}
	}
	for _, p := range root.without(paths) {
		r.remove(p)
		r.write(p, registry.Reported{})
	}
	return r.update(ctx, root, jobs)
}

// readChanged reads the parents and nodes of a root of which watches reported changes.
func (r *sourceRun) readChanged(ctx context.Context, root *root, paths []string) error {
	if slices.Contains(paths, root.path) {
		if err := r.readNew(ctx, root); err != nil {
			return err
		}
	}
	jobs := make(map[*parentNode]*job)
	jobAt := func(path string) *job {
		p := root.parents[path]
		if p == nil {
			return &job{} // dropped: the path is not that of a parent
		}
		if jobs[p] == nil {
			jobs[p] = &job{parent: p}
		}
		return jobs[p]
	}
	for _, p := range paths {
		jobAt(p).list = true               // a node or the parent was created or deleted
		jobAt(p + root.suffix).list = true // the parent may have been created with the node above it
		if root.format.HasData() {
			j := jobAt(parentOf(p))
			j.nodeNames = append(j.nodeNames, baseOf(p))
		}
	}
	byPath := func(a, b *job) int { return cmp.Compare(a.parent.path, b.parent.path) }
	return r.update(ctx, root, slices.SortedFunc(maps.Values(jobs), byPath))
}

// interestChanged reads the names that were added to the Interest.
func (r *sourceRun) interestChanged(ctx context.Context) error {
	for _, root := range r.roots {
		if err := r.readNew(ctx, root); err != nil {
			return err
		}
	}
	r.answer(r.opts.Interest.Unreported())
	return nil
}

// retry reads again the roots and parents that failed.
func (r *sourceRun) retry(ctx context.Context) error {
	now := time.Now()
	for _, root := range r.roots {
		if root.retries.due(root.err, now) {
			if err := r.readNew(ctx, root); err != nil {
				return err
			}
		}
		var jobs []*job
		for _, path := range slices.Sorted(maps.Keys(root.parents)) {
			if p := root.parents[path]; p.retries.due(p.failure(), now) {
				jobs = append(jobs, &job{parent: p, list: true})
			}
		}
		if err := r.update(ctx, root, jobs); err != nil {
			return err
		}
	}
	r.answer(r.names())
	return nil
}

// update reads parents of a root, and writes them to the table.
func (r *sourceRun) update(ctx context.Context, root *root, jobs []*job) error {
	if err := r.read(ctx, root, jobs); err != nil {
		return err
	}
	names := make([]string, 0, len(jobs))
	for _, j := range jobs {
		r.publish(j.parent)
		names = append(names, root.nameOf(j.parent))
	}
	r.answer(names)
	return nil
}

// read reads parents of a root, and stores their contents.
func (r *sourceRun) read(ctx context.Context, root *root, jobs []*job) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readAhead)
	slots := make(chan struct{}, readAhead)
	for _, j := range jobs {
		group.Go(func() error {
			if err := r.tree.read(ctx, j, slots); err != nil {
				return fmt.Errorf("read %s: %w", j.parent.path, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, j := range jobs {
		if j.rootGone {
			r.rootFailed(root, errRootGone(root.path))
			continue
		}
		j.parent.content = j.content
		root.existed = root.existed || j.count > 0
		r.documents.require(j.parent)
	}
	return nil
}

// rootFailed marks a root as unknown because its parents cannot be listed. Their services
// are kept.
func (r *sourceRun) rootFailed(root *root, err error) {
	if root.err == nil || root.err.Error() != err.Error() {
		r.opts.Log.Warn("root not read; its services are kept and unknown",
			"format", root.format.Kind(), "root", root.path, "err", err)
		r.tableWriter.Report(&root.reported, registry.Reported{Unknown: map[string]error{root.scope: err}})
	}
	root.err = err
}

// remove removes a parent that no longer exists.
func (r *sourceRun) remove(p *parentNode) {
	delete(p.root.parents, p.path)
	if p.root.groups[p.group] == p {
		delete(p.root.groups, p.group)
		r.documents.release(p.group)
	}
}

// publish writes a parent to the table as it was read last.
func (r *sourceRun) publish(p *parentNode) { r.write(p, r.reportOf(p)) }

// write writes a report on a parent to the table.
func (r *sourceRun) write(p *parentNode, now registry.Reported) {
	r.tableWriter.Report(&p.reported, now)
	r.tableWriter.Apply()
}

// reportOf returns the report on a parent as it was read last.
func (r *sourceRun) reportOf(p *parentNode) registry.Reported {
	services, failed := p.services, p.invalid
	now := registry.Reported{Skipped: make(map[string]string), Unknown: make(map[string]error)}
	if dependent, ok := p.root.format.(HasDependencies); ok {
		services, failed = r.documents.decode(dependent, p, now.Unknown)
	}
	for _, f := range failed {
		now.Skipped[p.group.String()+" "+f.Entry.Key] = f.Err.Error()
	}
	if err := p.failure(); err != nil {
		now.Unknown[metadata.ScopeOf(p.root.format, p.group)] = err
		for _, s := range slices.Concat(services, p.reported.Services) {
			now.Unknown[string(s.Name)] = err
		}
	}
	now.Services = registry.KeepEmpty(services, p.reported.Services)
	return now
}

// replaceTable replaces the table by the services of all parents.
func (r *sourceRun) replaceTable(gone []*parentNode) {
	for _, root := range r.roots {
		for _, path := range slices.Sorted(maps.Keys(root.parents)) {
			p := root.parents[path]
			r.tableWriter.Report(&p.reported, r.reportOf(p))
		}
		if root.err == nil {
			r.tableWriter.Report(&root.reported, registry.Reported{})
		}
	}
	for _, p := range gone {
		r.tableWriter.Report(&p.reported, registry.Reported{})
	}
	r.tableWriter.Answer(r.names()...)
	r.tableWriter.Replace()
}

// names returns the names of all parents, and those of the Interest that have no answer yet.
func (r *sourceRun) names() []string {
	names := r.opts.Interest.Unreported()
	for _, root := range r.roots {
		for _, p := range root.parents {
			names = append(names, root.nameOf(p))
		}
	}
	return names
}

// answer answers names of the Interest.
func (r *sourceRun) answer(names []string) {
	r.tableWriter.Answer(names...)
	r.tableWriter.Apply()
}

// stateOf returns why a name of the Interest is unknown; nil if the table has its services.
// It returns false until the name was read.
func (r *sourceRun) stateOf(name string) (unknown error, ok bool) {
	for _, root := range r.roots {
		path := root.pathOf(name)
		if _, ok := root.format.Group(path); !ok {
			continue // a parent of this format cannot have the name
		}
		parent := root.parents[path]
		switch {
		case root.err != nil:
			unknown = cmp.Or(unknown, root.err)
		case parent == nil:
			return nil, false
		default:
			for _, scope := range slices.Sorted(maps.Keys(parent.reported.Unknown)) {
				unknown = cmp.Or(unknown, parent.reported.Unknown[scope])
			}
		}
	}
	return unknown, true
}
