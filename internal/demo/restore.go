package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// realRegistry is a ZooKeeper in which the demo restores the original state.
type realRegistry struct {
	address string
	owner   string
	client  *zookeeper.Client
	target  *zookeeper.Target
	missing []string // parents that did not exist before, the deepest first
}

// paths returns the parents for the keys of the mesh, and the parents of these.
func (m *meshFile) paths(root string) []string {
	var all []string
	for _, s := range m.Services {
		for _, key := range s.Keys {
			k, err := naming.ParseServiceKey(key)
			if err != nil {
				continue // parseMesh rejected it
			}
			for p := path.Join(root, k.Interface, "providers"); p != "/"; p = path.Dir(p) {
				all = append(all, p)
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(strings.Count(b, "/")-strings.Count(a, "/"), strings.Compare(a, b))
	})
	return slices.Compact(all)
}

// remember records which parents do not exist.
func (r *realRegistry) remember(ctx context.Context, paths []string) error {
	return r.raw(ctx, func(conn *zk.Conn) error {
		for _, path := range paths {
			there, _, err := conn.Exists(path)
			if err != nil {
				return fmt.Errorf("look for %s: %w", path, err)
			}
			if !there {
				r.missing = append(r.missing, path)
			}
		}
		return nil
	})
}

// restore deletes the demo's entries, and the empty parents that did not exist before.
func (r *realRegistry) restore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	groups, err := r.target.Groups(ctx)
	if err != nil {
		return r.restoreError(err)
	}
	for _, g := range groups {
		held, err := r.target.Read(ctx, g)
		if err != nil {
			return r.restoreError(err)
		}
		ours := slices.DeleteFunc(held, func(h registry.Stored) bool { return h.Owner != r.owner })
		if err := r.target.Write(ctx, registry.Change{Group: g, Delete: ours}); err != nil {
			return r.restoreError(err)
		}
	}
	return r.raw(ctx, func(conn *zk.Conn) error {
		for _, path := range r.missing {
			err := conn.Delete(path, -1)
			if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNotEmpty) {
				return r.restoreError(err)
			}
		}
		return nil
	})
}

func (r *realRegistry) restoreError(err error) error {
	return fmt.Errorf("demo: entries may remain in ZooKeeper at %s: %w; to delete them, run: xds-bridge demo --once --zookeeper %s",
		r.address, err, r.address)
}

// raw opens a session in addition to the target's, to delete parents, which a target never does.
func (r *realRegistry) raw(ctx context.Context, use func(*zk.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, events, err := zk.Connect([]string{r.address}, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		return fmt.Errorf("demo: ZooKeeper at %s: %w", r.address, err)
	}
	defer conn.Close()
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return use(conn)
			}
		case <-ctx.Done():
			return fmt.Errorf("demo: ZooKeeper at %s %w: check --zookeeper", r.address, ErrUnreachable)
		}
	}
}

type silent struct{}

// Printf implements zk.Logger.
func (silent) Printf(string, ...any) {}
