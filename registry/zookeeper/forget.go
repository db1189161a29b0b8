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

// Alive says who lives as an owner, empty where nobody does.
func (t *Target) Alive(ctx context.Context, owner string) (string, error) {
	path := homeOf(owner) + "/alive"
	n, err := t.client.get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	l := parseAlive(n.data)
	if l.ended() {
		return "", nil
	}
	return fmt.Sprintf("process %d on host %q", l.Process, l.Host), nil
}

// Owners returns whom the registry remembers: those whose bridges wrote to it,
// or read from it.
func (t *Target) Owners(ctx context.Context) ([]string, error) { return t.owners(ctx) }

// Forget takes bridges out of what the registry remembers of an owner, and
// drops all that it keeps for the owner when none is left. Entries stay.
func (t *Target) Forget(ctx context.Context, owner string, bridges []string) error {
	path := homeOf(owner) + bridgesNode
	n, err := t.client.get(ctx, path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("read %s: %w", path, err)
	}
	var rest []string
	for line := range strings.Lines(string(n.data)) {
		if !slices.Contains(bridges, strings.TrimSpace(line)) {
			rest = append(rest, line)
		}
	}
	if len(rest) == 0 {
		return t.clear(ctx, homeOf(owner))
	}
	_, err = t.client.multi(ctx, []any{&zk.SetDataRequest{Path: path, Data: []byte(strings.Join(rest, "")), Version: n.stat.Version}})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// clear deletes a node of ours and all below it, but for what other processes
// keep alive.
func (t *Target) clear(ctx context.Context, path string) error {
	names, err := t.client.children(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", path, err)
	}
	for _, name := range names {
		if err := t.clear(ctx, path+"/"+name); err != nil {
			return err
		}
	}
	stat, err := t.client.exists(ctx, path)
	if err != nil || stat == nil || stat.EphemeralOwner != 0 {
		return err
	}
	_, err = t.client.multi(ctx, []any{&zk.DeleteRequest{Path: path, Version: -1}})
	if err != nil && !harmless(err, path) {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}

// harmless reports whether a node that could not be deleted may stay: it is
// gone, or in use, or empty in what another user made, where it says nothing.
func harmless(err error, path string) bool {
	return errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNotEmpty) || errors.Is(err, registry.ErrRefused) && (path == home || parentOf(path) == home)
}
