package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/xds-bridge/xds-bridge/registry"
)

// recorder stores small texts in the home of an owner.
type recorder struct{ home *home }

// A Recorder is a registry.Recorder that can be tried.
type Recorder interface {
	registry.Recorder

	// TryRecord returns why no record can be kept; nil: records can be.
	TryRecord(ctx context.Context) error
}

// NewRecorder returns a Recorder of an owner for a process that writes no entries into the
// ensemble of the client.
func NewRecorder(client *Client, owner string, access Access) Recorder {
	return recorder{newHome(client, owner, access)}
}

// TryRecord creates and deletes a node, and returns why no texts can be stored. Only the
// parent /xds-bridge/<owner> may remain.
func (r recorder) TryRecord(ctx context.Context) error { return r.home.probe(ctx, &Report{}) }

// Records implements registry.Recorder: a text is a node under
// /xds-bridge/<owner>/<kind>.
func (r recorder) Records(ctx context.Context, kind string) (map[string]string, error) {
	parent := r.home.node(kind)
	names, err := r.home.client.list(ctx, parent)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(names))
	var refused error
	for _, name := range names {
		n, err := r.home.client.read(ctx, parent+"/"+name)
		switch {
		case errors.Is(err, registry.ErrRefused):
			refused = cmp.Or(refused, err)
		case err != nil:
			return nil, err
		case n.stat != nil: // otherwise it was deleted after the list
			all[name] = string(n.data)
		}
	}
	return all, refused
}

// Record implements registry.Recorder. One transaction replaces all texts. If that fails,
// because a node is missing or refused or the request would be too large, each text has
// its own request, with several in flight at a time.
func (r recorder) Record(ctx context.Context, kind string, texts map[string]string) error {
	if r.replace(ctx, kind, texts) {
		return nil
	}
	var mu sync.Mutex
	refused := make(registry.Refused)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readAhead)
	for name, text := range texts {
		g.Go(func() error {
			err := r.store(ctx, kind+"/"+name, text)
			if errors.Is(err, registry.ErrRefused) {
				mu.Lock()
				defer mu.Unlock()
				refused[name] = err
				return nil
			}
			return err
		})
	}
	return cmp.Or(g.Wait(), refused.Err())
}

// replace replaces several texts in one transaction, and reports whether it succeeded.
func (r recorder) replace(ctx context.Context, kind string, texts map[string]string) bool {
	var ops []any
	size := 0
	for name, text := range texts {
		path := r.home.request(kind+"/"+name, text, zk.FlagPersistent).Path
		var op any = &zk.SetDataRequest{Path: path, Data: []byte(text), Version: -1}
		if text == "" {
			op = &zk.DeleteRequest{Path: path, Version: -1}
		}
		ops, size = append(ops, op), size+operationSize(op)
	}
	if len(ops) < 2 || len(ops) > maxOps || size > maxBytes {
		return false
	}
	_, err := r.home.client.multi(ctx, ops)
	return err == nil
}

// store stores a text in its node; an empty text deletes the node.
func (r recorder) store(ctx context.Context, path, text string) error {
	create := r.home.request(path, text, zk.FlagPersistent)
	if err := checkSize(create); err != nil {
		return err
	}
	if text == "" {
		return r.home.client.delete(ctx, create.Path)
	}
	return r.home.client.store(ctx, create)
}
