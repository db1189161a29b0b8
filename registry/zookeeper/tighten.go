package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// aclAbove returns the ACL of a node that is made because another with an ACL
// lies below it. The bridge's own are for the same; others may make theirs in
// the one for all owners, and not delete there. All else stays open, because
// clients make their own nodes in it.
func aclAbove(path string, below []zk.ACL) []zk.ACL {
	open := slices.Contains(below, zk.WorldACL(zk.PermAll)[0])
	switch {
	case open, path != home && !strings.HasPrefix(path, home+"/"):
		return zk.WorldACL(zk.PermAll)
	case path != home:
		return below
	}
	ours := slices.DeleteFunc(slices.Clone(below), func(a zk.ACL) bool { return a.Scheme == "world" })
	return append(ours, zk.WorldACL(zk.PermRead|zk.PermCreate)...)
}

// tighten takes from everybody what a version before left open: the nodes
// above the bridge's own, under which anybody could delete its fence or show
// a sign of life in its name. What another user made is reported, and left.
func (t *Target) tighten(ctx context.Context) error {
	session := t.client.State().Session
	if done, _ := t.tightened.get(session); done || t.opts.Access == Open {
		return nil
	}
	names, err := t.client.children(ctx, t.home())
	if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, registry.ErrRefused) {
		return fmt.Errorf("list %s: %w", t.home(), err)
	}
	paths := []string{home, t.home()}
	for _, name := range names {
		paths = append(paths, t.home()+"/"+name)
	}
	for _, path := range paths {
		err := t.tightenOne(ctx, path)
		if errors.Is(err, registry.ErrRefused) {
			t.opts.Log.Warn("a node of the bridge's own is open to everybody, and not ours to close; set its ACL by hand", "path", path, "err", err)
		} else if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return fmt.Errorf("ACL of %s: %w", path, err)
		}
	}
	t.tightened.set(session, true)
	return nil
}

// tightenOne replaces the ACL of a node that everybody may change.
func (t *Target) tightenOne(ctx context.Context, path string) error {
	_, err := call(ctx, t.client, func(conn conn) (struct{}, error) {
		acl, stat, err := conn.GetACL(path)
		if err != nil || !slices.Contains(acl, zk.WorldACL(zk.PermAll)[0]) {
			return struct{}{}, err
		}
		_, err = conn.SetACL(path, aclAbove(path, t.acl()), stat.Aversion)
		return struct{}{}, err
	})
	return err
}
