package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

// HasDependencies is a Format whose entries are understood only with what is
// elsewhere.
type HasDependencies interface {
	Format

	// Dependencies names what has to be read beside the entries.
	Dependencies(entries []registry.Entry) []metadata.Ref

	// Places returns the paths at which it may lie, the first that is there
	// counts; none for what ZooKeeper does not store.
	Places(ref metadata.Ref) []string
}

// places returns where ZooKeeper may store what is needed.
func (r *reading) places(ref metadata.Ref) []string {
	for _, root := range r.roots {
		if dependent, ok := root.format.(HasDependencies); ok && root.holds(ref.Group) {
			return dependent.Places(ref)
		}
	}
	return nil
}

func (r *root) holds(group registry.Group) bool {
	_, err := r.format.Parent(group)
	return err == nil
}

// stored reads a document. What is not there, or empty as a node is before it is
// written, is watched for.
func (r *reading) stored(ctx context.Context, ref metadata.Ref) (string, error) {
	var missing, denied, never error
	for _, p := range r.places(ref) {
		data, err := r.document(ctx, p)
		switch {
		case errors.Is(err, zk.ErrNoNode), err == nil && len(data) == 0:
			missing = dependency.ErrMissing
		case err == nil:
			return string(data), nil
		case errors.Is(err, zk.ErrNoAuth):
			denied = fmt.Errorf("%s: %s", p, err.Error()) // it may be permitted later, so that it wraps no refusal
		case errors.Is(err, registry.ErrRefused):
			never = fmt.Errorf("%s: %w", p, err)
		default:
			return "", err
		}
	}
	for _, err := range []error{denied, missing} {
		if err != nil {
			return "", err
		}
	}
	return "", never
}

func (r *reading) document(ctx context.Context, p string) ([]byte, error) {
	n, err := r.client.get(ctx, p)
	if err == nil && len(n.data) > 0 || err != nil && !errors.Is(err, zk.ErrNoNode) {
		return n.data, err
	}
	there, err := r.exists(ctx, p)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, zk.ErrNoNode
	}
	n, err = r.client.get(ctx, p) // it came in between
	return n.data, err
}

// requireDocuments makes what a parent's entries need known to the set, and the paths at
// which it may come to the events.
func (r *reading) requireDocuments(f *parentNode) {
	dependent, ok := f.root.format.(HasDependencies)
	if !ok {
		return
	}
	refs := dependent.Dependencies(f.entries(f, f.known()))
	r.dependencies.Want(time.Now(), f.group, refs)
	for _, ref := range refs {
		if r.dependencies.Why(ref) == nil {
			continue
		}
		for _, p := range dependent.Places(ref) {
			r.await[p] = ref
		}
	}
}

// understand decodes entries with the documents that they need, as far as these
// are known, and adds what is unknown for want of others.
func (r *reading) understand(dependent HasDependencies, f *parentNode, next *published) ([]*registry.Service, []metadata.DecodeError) {
	services, failed := dependent.Decode(f.entries(f, f.known()), r.dependencies.Documents(f.group))
	undecodable := r.dependencies.Undecodable(failed, dependent.Dependencies)
	next.lost = f.published.lost.Next(undecodable, f.published.services)
	next.lost.Unknown(undecodable, next.unknown)
	if err := r.dependencies.Unknown(f.group); err != nil {
		next.unknown[metadata.ScopeOf(dependent, f.group)] = err
	}
	return services, failed
}

// fetch starts what is due, and sets a timer to when more is.
func (r *reading) fetch(ctx context.Context, due *time.Timer) {
	now := time.Now()
	r.fetcher.Start(ctx, now)
	if next, ok := r.dependencies.Next(); ok {
		due.Reset(next.Sub(now))
	}
}

// fetched takes in what was fetched.
func (r *reading) fetched(result dependency.Result) {
	if !r.fetcher.Accept(time.Now(), result) {
		return
	}
	if result.Err != nil {
		r.opts.Log.Warn("what an instance provides is not known", "group", result.Ref.Group.String(), "key", result.Ref.Key, "err", result.Err)
	} else {
		for _, p := range r.places(result.Ref) {
			delete(r.await, p)
		}
	}
	i := slices.IndexFunc(r.roots, func(root *root) bool { return root.groups[result.Ref.Group] != nil })
	if i >= 0 && r.whole {
		r.publish(r.roots[i].groups[result.Ref.Group])
	}
}

// awaitDocuments waits, in the first reading of a connection, until everything
// that entries need was tried once: else much would seem to come a moment later
// than all the rest.
func (r *reading) awaitDocuments(ctx context.Context) error {
	if r.whole {
		return nil
	}
	enough, due := time.NewTimer(patience), time.NewTimer(0)
	defer enough.Stop()
	defer due.Stop()
	for !r.dependencies.Sought() {
		r.fetch(ctx, due)
		select {
		case <-ctx.Done():
			return fmt.Errorf("zookeeper: %w", context.Cause(ctx))
		case <-enough.C:
			return nil
		case <-due.C:
		case result := <-r.fetcher.Results():
			r.fetched(result)
		}
	}
	return nil
}
