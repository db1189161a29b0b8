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
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

// readAll reads everything anew and replaces the table by it.
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
	if !r.whole {
		if err := r.documents.awaitAll(ctx); err != nil {
			return err
		}
	}
	for _, p := range gone {
		r.remove(p)
	}
	r.publisher.replace(gone)
	r.whole = true
	r.failures = 0
	r.publisher.reportAll()
	return nil
}

// RootAbsent is what is said of a root that does not exist.
const RootAbsent = "does not exist, so that nothing is read there; check root of the bridge's formats or reads, unless the first provider has yet to register"

// parents returns the paths of the parents of a root, and reports whether it exists.
func (r *sourceRun) parents(ctx context.Context, root *root) ([]string, error) {
	paths, err := r.tree.parents(ctx, root)
	if err == nil {
		absent := registry.Omission{}
		if !root.existed {
			absent = registry.Omission{Reason: RootAbsent, Cause: registry.Unasked}
		}
		r.publisher.table.Omit(root.path, absent)
	}
	return paths, err
}

// readRoot reads all parents of a root, or all that are known if it cannot be
// listed, and returns those that do not exist any more.
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

// without returns the parents of a root that are not at some paths.
func (r *root) without(paths []string) (gone []*parentNode) {
	for path, p := range r.parents {
		if _, exists := slices.BinarySearch(paths, path); !exists {
			gone = append(gone, p)
		}
	}
	return gone
}

// readNew lists the parents of a root, and reads those that are new.
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
		r.reread = true // what is missing now was not seen to be deleted
		return nil      //nolint:nilerr // it is that of an earlier list
	}
	var jobs []*job
	for _, p := range paths {
		if root.parents[p] == nil {
			jobs = append(jobs, &job{parent: root.parent(p), list: true, full: true})
		}
	}
	for _, p := range root.without(paths) {
		r.remove(p)
		r.publisher.apply(p, published{})
	}
	return r.update(ctx, root, jobs)
}

// readChanged reads what watches reported of a root.
func (r *sourceRun) readChanged(ctx context.Context, root *root, paths []string) error {
	if slices.Contains(paths, root.path) {
		if err := r.readNew(ctx, root); err != nil {
			return err
		}
	}
	jobs := make(map[*parentNode]*job)
	of := func(path string) *job {
		p := root.parents[path]
		if p == nil {
			return &job{} // of no parent of the root
		}
		if jobs[p] == nil {
			jobs[p] = &job{parent: p}
		}
		return jobs[p]
	}
	for _, p := range paths {
		of(p).list = true               // a node was created or deleted, or the parent was
		of(p + root.suffix).list = true // the parent may have been created with the node above it
		if root.format.HasData() {
			node := of(parentOf(p))
			node.only = append(node.only, baseOf(p))
		}
	}
	byPath := func(a, b *job) int { return cmp.Compare(a.parent.path, b.parent.path) }
	return r.update(ctx, root, slices.SortedFunc(maps.Values(jobs), byPath))
}

// interestChanged reads what readers ask for now and did not before.
func (r *sourceRun) interestChanged(ctx context.Context) error {
	for _, root := range r.roots {
		if err := r.readNew(ctx, root); err != nil {
			return err
		}
	}
	r.publisher.report(r.opts.Interest.Unreported())
	return nil
}

// retry reads again what may not be read.
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
	r.publisher.reportAll()
	return nil
}

// update reads parents of a root and publishes them.
func (r *sourceRun) update(ctx context.Context, root *root, jobs []*job) error {
	if err := r.read(ctx, root, jobs); err != nil {
		return err
	}
	names := make([]string, 0, len(jobs))
	for _, j := range jobs {
		r.publisher.publish(j.parent)
		names = append(names, root.nameOf(j.parent))
	}
	r.publisher.report(names)
	return nil
}

// read reads parents of a root, and keeps their contents.
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

// rootFailed records why the parents of a root cannot be listed: what they hold
// stays, and is unknown.
func (r *sourceRun) rootFailed(root *root, err error) {
	if root.err == nil || root.err.Error() != err.Error() {
		r.opts.Log.Warn("format not read", "format", root.format.Kind(), "root", root.path, "err", err)
		r.publisher.table.Unknown(root.scope, err)
	}
	root.err = err
}

// remove drops a parent that does not exist any more.
func (r *sourceRun) remove(p *parentNode) {
	delete(p.root.parents, p.path)
	if p.root.groups[p.group] == p {
		delete(p.root.groups, p.group)
		r.documents.release(p.group)
	}
}

// A publisher reports parents to a table, and to the readers of an Interest.
type publisher struct {
	table     *registry.Table
	roots     []*root
	interest  *registry.Interest
	documents *documents
	rows      map[registry.Name]*parentNode // the parent that each row came from
}

// published is what of a parent was reported to the table.
type published struct {
	services []*registry.Service
	skipped  map[string]string // reasons, by input
	unknown  map[string]error  // reasons, by scope
	lost     dependency.Lost
}

// replace makes the table hold the services of all parents. It reports what is unknown
// before, and what no longer is after it.
func (p *publisher) replace(gone []*parentNode) {
	var rows []*registry.Service
	next := make(map[*parentNode]published)
	clear(p.rows)
	for _, root := range p.roots {
		for _, path := range slices.Sorted(maps.Keys(root.parents)) {
			parent := root.parents[path]
			to := p.next(parent)
			next[parent] = to
			rows = append(rows, to.services...)
			for _, s := range to.services {
				p.rows[s.Name] = parent
			}
		}
	}
	for _, parent := range gone {
		next[parent] = published{}
	}
	for parent, to := range next {
		p.before(parent.published, to)
	}
	p.table.Replace(slices.Values(rows))
	for parent, to := range next {
		p.after(parent, to)
	}
	for _, root := range p.roots {
		if root.err == nil {
			p.table.Unknown(root.scope, nil)
		}
	}
}

func (p *publisher) publish(parent *parentNode) { p.apply(parent, p.next(parent)) }

// apply reports what there is of a parent now, in place of what was reported before.
func (p *publisher) apply(parent *parentNode, to published) {
	kept := make(map[registry.Name]bool, len(to.services))
	for _, s := range to.services {
		kept[s.Name], p.rows[s.Name] = true, parent
	}
	var gone []registry.Name
	for _, s := range parent.published.services {
		if !kept[s.Name] && p.rows[s.Name] == parent {
			delete(p.rows, s.Name)
			gone = append(gone, s.Name)
		}
	}
	p.before(parent.published, to)
	p.table.Apply(to.services, gone)
	p.after(parent, to)
}

// next returns what is to be reported of a parent.
func (p *publisher) next(parent *parentNode) published {
	services, failed := parent.services, parent.invalid
	to := published{skipped: make(map[string]string), unknown: make(map[string]error)}
	if dependent, ok := parent.root.format.(HasDependencies); ok {
		services, failed = p.documents.decode(dependent, parent, &to)
	}
	for _, f := range failed {
		to.skipped[parent.group.String()+" "+f.Entry.Key] = f.Err.Error()
	}
	if err := parent.failure(); err != nil {
		to.unknown[metadata.ScopeOf(parent.root.format, parent.group)] = err
		for _, s := range slices.Concat(services, parent.published.services) {
			to.unknown[string(s.Name)] = err
		}
	}
	to.services = registry.KeepEmpty(services, parent.published.services)
	return to
}

// before reports what is unknown and what is skipped, before the services.
func (p *publisher) before(from, to published) {
	for scope, err := range to.unknown {
		if before := from.unknown[scope]; before == nil || before.Error() != err.Error() {
			p.table.Unknown(scope, err)
		}
	}
	for key := range from.skipped {
		if _, still := to.skipped[key]; !still {
			p.table.Skip(key, "")
		}
	}
	for key, reason := range to.skipped {
		if from.skipped[key] != reason {
			p.table.Skip(key, reason)
		}
	}
}

// after reports what is no longer unknown, after the services.
func (p *publisher) after(parent *parentNode, to published) {
	for scope := range parent.published.unknown {
		if to.unknown[scope] == nil {
			p.table.Unknown(scope, nil)
		}
	}
	parent.published = to
}

// reportAll reports all names that readers of the Interest ask for.
func (p *publisher) reportAll() {
	names := p.interest.Unreported()
	for _, root := range p.roots {
		for _, parent := range root.parents {
			names = append(names, root.nameOf(parent))
		}
	}
	p.report(names)
}

// report reports to the readers of the Interest that the table has names, or why they
// are unknown.
func (p *publisher) report(names []string) {
	if p.interest == nil {
		return
	}
	results := make(map[string]error, len(names))
	for _, name := range names {
		if err, ok := p.result(name); ok {
			results[name] = err
		}
	}
	p.interest.Report(results)
}

// result returns why a name is unknown, nil if the table has it; not ok until it is read.
func (p *publisher) result(name string) (unknown error, ok bool) {
	for _, root := range p.roots {
		path := root.pathOf(name)
		if _, ok := root.format.Group(path); !ok {
			continue // no parent of this format can have the name
		}
		parent := root.parents[path]
		switch {
		case root.err != nil:
			unknown = cmp.Or(unknown, root.err)
		case parent == nil:
			return nil, false
		default:
			for _, scope := range slices.Sorted(maps.Keys(parent.published.unknown)) {
				unknown = cmp.Or(unknown, parent.published.unknown[scope])
			}
		}
	}
	return unknown, true
}
