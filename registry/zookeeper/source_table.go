package zookeeper

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

// published is what was reported to the table of a parent.
type published struct {
	services []*registry.Service
	skipped  map[string]string // reasons, by input
	unknown  map[string]error  // reasons, by scope
	lost     dependency.Lost
}

// all reads everything anew and replaces what the table holds by it.
func (r *reading) all(ctx context.Context) error {
	r.events.reset()
	r.anew = false
	var gone []*parentNode
	for _, root := range r.roots {
		left, err := r.reread(ctx, root)
		if err != nil {
			return err
		}
		gone = append(gone, left...)
	}
	maps.DeleteFunc(r.await, func(_ string, ref metadata.Ref) bool { return !r.dependencies.Wants(ref) })
	if err := r.awaitDocuments(ctx); err != nil {
		return err
	}
	for _, f := range gone {
		r.forget(f)
	}
	r.replace(gone)
	r.whole = true
	r.wait = 0
	r.answerAll()
	return nil
}

// reread reads the parents of a root, all that are known where it cannot be
// listed, and returns those that are no more.
func (r *reading) reread(ctx context.Context, root *root) (gone []*parentNode, err error) {
	paths, err := r.list(ctx, root)
	switch {
	case local(err):
		r.failed(root, err)
		paths = slices.Sorted(maps.Keys(root.parents))
	case err != nil:
		return nil, err
	default:
		root.err = nil
	}
	here := make(map[string]bool, len(paths))
	jobs := make([]*job, 0, len(paths))
	for _, p := range paths {
		here[p] = true
		jobs = append(jobs, &job{parent: root.parent(p), list: true, full: true})
	}
	for p, f := range root.parents {
		if !here[p] {
			gone = append(gone, f)
		}
	}
	return gone, r.read(ctx, root, jobs)
}

// failed takes in why the parents of a root cannot be listed: what they hold
// stays, and nothing is concluded of it.
func (r *reading) failed(root *root, err error) {
	if root.err == nil || root.err.Error() != err.Error() {
		r.opts.Log.Warn("format not read", "format", root.format.Kind(), "root", root.path, "err", err)
		r.table.Unknown(root.scope, err)
	}
	root.err = err
}

// replace reports to the table everything that is known. What is doubtful is said
// before, and what no longer is after it.
func (r *reading) replace(gone []*parentNode) {
	var rows []*registry.Service
	var changes []change
	clear(r.rows)
	for _, root := range r.roots {
		for _, p := range slices.Sorted(maps.Keys(root.parents)) {
			f := root.parents[p]
			next := r.decode(f)
			next.services = registry.KeepEmpty(next.services, f.published.services)
			changes = append(changes, change{f, f.published, next})
			rows = append(rows, next.services...)
			for _, s := range next.services {
				r.rows[s.Name] = f
			}
		}
	}
	for _, f := range gone {
		changes = append(changes, change{f, f.published, published{}})
	}
	for _, c := range changes {
		r.addUnknown(c)
		r.skip(c)
	}
	r.table.Replace(slices.Values(rows))
	for _, c := range changes {
		r.removeUnknown(c)
		c.parent.published = c.to
	}
	for _, root := range r.roots {
		if root.err == nil {
			r.table.Unknown(root.scope, nil)
		}
	}
}

// A change is of what is reported to the table of a parent.
type change struct {
	parent   *parentNode
	from, to published
}

// addUnknown reports to the table what is unknown, before what was read beside it.
func (r *reading) addUnknown(c change) {
	for scope, err := range c.to.unknown {
		if was := c.from.unknown[scope]; was == nil || was.Error() != err.Error() {
			r.table.Unknown(scope, err)
		}
	}
}

// removeUnknown takes back what is no longer unknown, after what it is was reported to the table.
func (r *reading) removeUnknown(c change) {
	for scope := range c.from.unknown {
		if c.to.unknown[scope] == nil {
			r.table.Unknown(scope, nil)
		}
	}
}

func (r *reading) skip(c change) {
	for key := range c.from.skipped {
		if _, still := c.to.skipped[key]; !still {
			r.table.Skip(key, "")
		}
	}
	for key, reason := range c.to.skipped {
		if c.from.skipped[key] != reason {
			r.table.Skip(key, reason)
		}
	}
}

// publish reports to the table what became of a parent.
func (r *reading) publish(f *parentNode) {
	next := r.decode(f)
	next.services = registry.KeepEmpty(next.services, f.published.services)
	r.publishChange(change{f, f.published, next})
}

func (r *reading) publishChange(c change) {
	there := make(map[registry.Name]bool, len(c.to.services))
	for _, s := range c.to.services {
		there[s.Name], r.rows[s.Name] = true, c.parent
	}
	var gone []registry.Name
	for _, s := range c.from.services {
		if !there[s.Name] && r.rows[s.Name] == c.parent {
			delete(r.rows, s.Name)
			gone = append(gone, s.Name)
		}
	}
	r.addUnknown(c)
	r.skip(c)
	r.table.Apply(c.to.services, gone)
	r.removeUnknown(c)
	c.parent.published = c.to
}

// decode makes of a parent what the table is to hold of it.
func (r *reading) decode(f *parentNode) published {
	services, failed := f.services, f.invalid
	next := published{skipped: make(map[string]string), unknown: make(map[string]error)}
	if dependent, ok := f.root.format.(HasDependencies); ok {
		services, failed = r.understand(dependent, f, &next)
	}
	for _, one := range failed {
		next.skipped[f.group.String()+" "+one.Entry.Key] = one.Err.Error()
	}
	if err := f.failure(); err != nil {
		next.unknown[metadata.ScopeOf(f.root.format, f.group)] = err
		for _, s := range slices.Concat(services, f.published.services) {
			next.unknown[string(s.Name)] = err
		}
	}
	next.services = services
	return next
}

// forget drops a parent that is no more.
func (r *reading) forget(f *parentNode) {
	delete(f.root.parents, f.path)
	if f.root.groups[f.group] == f {
		delete(f.root.groups, f.group)
		r.dependencies.Want(time.Now(), f.group, nil)
	}
}

// again reads the list of a root's parents and those that are new in it.
func (r *reading) again(ctx context.Context, root *root) error {
	paths, err := r.list(ctx, root)
	if local(err) {
		r.failed(root, err)
		return nil
	}
	if err != nil {
		return err
	}
	if root.err != nil {
		r.anew = true // what is missing now was not seen to go
		return nil    //nolint:nilerr // it is that of an earlier list
	}
	here := make(map[string]bool, len(paths))
	var jobs []*job
	for _, p := range paths {
		here[p] = true
		if root.parents[p] == nil {
			jobs = append(jobs, &job{parent: root.parent(p), list: true, full: true})
		}
	}
	for p, f := range root.parents {
		if !here[p] {
			r.forget(f)
			r.publishChange(change{f, f.published, published{}})
		}
	}
	return r.update(ctx, root, jobs)
}

// update does readings of a root's parents and reports what changed by them.
func (r *reading) update(ctx context.Context, root *root, jobs []*job) error {
	if err := r.read(ctx, root, jobs); err != nil {
		return err
	}
	for _, j := range jobs {
		r.publish(j.parent)
	}
	names := make([]string, 0, len(jobs))
	for _, j := range jobs {
		names = append(names, root.nameOf(j.parent))
	}
	r.answer(names)
	return nil
}

// wish reads what is asked for by now and was not before.
func (r *reading) wish(ctx context.Context) error {
	for _, root := range r.roots {
		if err := r.again(ctx, root); err != nil {
			return err
		}
	}
	r.answer(r.opts.Interest.Unreported())
	return nil
}

// answerAll reports who wants anything what became of it.
func (r *reading) answerAll() {
	names := r.opts.Interest.Unreported()
	for _, root := range r.roots {
		for _, f := range root.parents {
			names = append(names, root.nameOf(f))
		}
	}
	r.answer(names)
}

// answer reports who wants names of those that the table has, or why they
// cannot be known.
func (r *reading) answer(names []string) {
	if r.opts.Interest == nil {
		return
	}
	answers := make(map[string]error, len(names))
	for _, name := range names {
		if err, ok := r.answerOf(name); ok {
			answers[name] = err
		}
	}
	r.opts.Interest.Report(answers)
}

// answerOf returns why a name cannot be known, nil where it was; not ok while it
// is to be read.
func (r *reading) answerOf(name string) (why error, ok bool) {
	for _, root := range r.roots {
		p := root.pathOf(name)
		if _, ok := root.format.Group(p); !ok {
			continue // no parent of this format can be called so
		}
		f := root.parents[p]
		switch {
		case root.err != nil:
			why = cmp.Or(why, root.err)
		case f == nil:
			return nil, false
		default:
			for _, scope := range slices.Sorted(maps.Keys(f.published.unknown)) {
				why = cmp.Or(why, f.published.unknown[scope])
			}
		}
	}
	return why, true //nolint:wrapcheck // it is what is reported of the names
}

// changed reads what watches reported of a root.
func (r *reading) changed(ctx context.Context, root *root, paths []string) error {
	if slices.Contains(paths, root.path) {
		if err := r.again(ctx, root); err != nil {
			return err
		}
	}
	jobs := make(map[*parentNode]*job)
	of := func(p string) *job {
		f := root.parents[p]
		if f == nil {
			return &job{} // of nothing here
		}
		if jobs[f] == nil {
			jobs[f] = &job{parent: f}
		}
		return jobs[f]
	}
	for _, p := range paths {
		of(p).list = true              // a node came or went, or the parent did
		of(p + root.after).list = true // the parent may have come to the node above it
		if root.format.HasData() {
			node := of(path.Dir(p))
			node.only = append(node.only, path.Base(p))
		}
	}
	return r.update(ctx, root, inOrder(jobs))
}

func inOrder(jobs map[*parentNode]*job) []*job {
	return slices.SortedFunc(maps.Values(jobs), func(a, b *job) int { return cmp.Compare(a.parent.path, b.parent.path) })
}

// retry reads again what may not be read.
func (r *reading) retry(ctx context.Context) error {
	now := time.Now()
	for _, root := range r.roots {
		if root.again.due(root.err, now) {
			if err := r.again(ctx, root); err != nil {
				return err
			}
		}
		var jobs []*job
		for _, p := range slices.Sorted(maps.Keys(root.parents)) {
			if f := root.parents[p]; f.again.due(f.failure(), now) {
				jobs = append(jobs, &job{parent: f, list: true})
			}
		}
		if err := r.update(ctx, root, jobs); err != nil {
			return err
		}
	}
	r.answerAll()
	return nil
}
