package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Record is one node that the replicas of an owner change by compare and
// swap, each over a client of its own: of one target who leads it.
type Record struct {
	client *Client
	path   string
	acl    []zk.ACL
}

// NewRecord returns the record of a target of an owner.
func NewRecord(client *Client, owner, target string, access Access) (*Record, error) {
	defaultTo(&access, Open)
	if client == nil || owner == "" || target == "" {
		return nil, errors.New("zookeeper record: it needs a client, an owner and a target")
	}
	return &Record{client: client, path: homeOf(owner) + "/leases/" + url.PathEscape(target), acl: access.acl()}, nil
}

// Load returns the record and its version; nothing and no version where there
// is none.
func (r *Record) Load(ctx context.Context) ([]byte, string, error) {
	n, err := r.client.get(ctx, r.path)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, "", nil
	case err != nil:
		return nil, "", fmt.Errorf("read %s: %w", r.path, err)
	}
	return n.data, strconv.FormatInt(int64(n.stat.Version), 10), nil
}

// Save replaces the record if it has a version still, and makes it where that
// is empty. It returns registry.ErrConflict where another was faster.
func (r *Record) Save(ctx context.Context, record []byte, version string) error {
	var err error
	if version == "" {
		err = r.create(ctx, record)
	} else {
		v, perr := strconv.ParseInt(version, 10, 32)
		if perr != nil {
			return fmt.Errorf("version %q of %s: %w", version, r.path, perr)
		}
		_, err = r.client.multi(ctx, []any{&zk.SetDataRequest{Path: r.path, Data: record, Version: int32(v)}})
	}
	switch {
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("%s: %w", r.path, registry.ErrConflict)
	case err != nil:
		return fmt.Errorf("write %s: %w", r.path, err)
	}
	return nil
}

// create makes the record; it fails where another made it.
func (r *Record) create(ctx context.Context, record []byte) error {
	parent := &zk.CreateRequest{Path: parentOf(r.path), Data: []byte{}, Acl: r.acl}
	if err := r.client.make(ctx, parent); err != nil {
		return err
	}
	_, err := r.client.multi(ctx, []any{&zk.CreateRequest{Path: r.path, Data: record, Acl: r.acl}})
	return err
}
