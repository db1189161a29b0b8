package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// NewRecorder returns what keeps records of an owner in the ensemble of a
// client, for who writes no entries there.
func NewRecorder(client *Client, owner string, access Access) registry.Recorder {
	defaultTo(&access, Open)
	return &Target{client: client, opts: TargetOptions{Owner: owner, Access: access}}
}

// TryRecord reports whether records can be kept, by a node that it makes and
// deletes. It leaves nothing behind but the parent /xds-bridge/<owner>.
func (t *Target) TryRecord(ctx context.Context) error { return t.probe(ctx, &Report{}) }

// Records implements registry.Recorder: a text is a node under
// /xds-bridge/<owner>/<kind>.
func (t *Target) Records(ctx context.Context, kind string) (map[string]string, error) {
	parent := t.home() + "/" + kind
	names, err := t.client.children(ctx, parent)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, fmt.Errorf("list %s: %w", parent, err)
	}
	all := make(map[string]string, len(names))
	var refused error
	for _, name := range names {
		n, err := t.client.get(ctx, parent+"/"+name)
		switch {
		case errors.Is(err, zk.ErrNoNode): // gone since
		case errors.Is(err, registry.ErrRefused):
			refused = cmp.Or(refused, fmt.Errorf("read %s/%s: %w", parent, name, err))
		case err != nil:
			return nil, fmt.Errorf("read %s/%s: %w", parent, name, err)
		default:
			all[name] = string(n.data)
		}
	}
	return all, refused //nolint:wrapcheck // it is
}

// Record implements registry.Recorder.
func (t *Target) Record(ctx context.Context, kind, name, text string) error {
	op := t.own(kind+"/"+name, text, zk.FlagPersistent)
	if n, limit := size(op), cmp.Or(t.opts.DataLimit, DefaultDataLimit); n > limit {
		return fmt.Errorf("%w: a node of %d bytes, the limit is %d", registry.ErrRefused, n, limit)
	}
	var err error
	if text == "" {
		_, err = t.client.multi(ctx, []any{&zk.DeleteRequest{Path: op.Path, Version: -1}})
	} else if _, err = t.client.multi(ctx, []any{&zk.SetDataRequest{Path: op.Path, Data: op.Data, Version: -1}}); errors.Is(err, zk.ErrNoNode) {
		return t.client.make(ctx, op)
	}
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("write %s: %w", op.Path, err)
	}
	return nil
}
