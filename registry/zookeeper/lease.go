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

// A LeaseStore is the node of the lease of one target. The replicas of an owner change it
// by compare and swap, each over its own client. It implements lease.Store.
type LeaseStore struct {
	client *Client
	path   string
	acl    []zk.ACL
}

// NewLeaseStore returns the store of the lease of an owner's target.
func NewLeaseStore(client *Client, owner, target string, access Access) (*LeaseStore, error) {
	if client == nil || owner == "" || target == "" {
		return nil, errors.New("zookeeper lease: a client, an owner or a target is missing")
	}
	h := newHome(client, owner, access)
	return &LeaseStore{client, h.node(leasesNode + "/" + url.PathEscape(target)), h.acl}, nil
}

// Load returns the content of the node and its version; nothing and no version if the node
// does not exist.
func (r *LeaseStore) Load(ctx context.Context) ([]byte, string, error) {
	n, err := r.client.read(ctx, r.path)
	if err != nil || n.stat == nil {
		return nil, "", err
	}
	return n.data, strconv.FormatInt(int64(n.stat.Version), 10), nil
}

// Save replaces the content of the node if the node still has a version. It creates the
// node if the version is empty. It returns registry.ErrConflict if another replica was
// faster.
func (r *LeaseStore) Save(ctx context.Context, content []byte, version string) error {
	var op any = &zk.CreateRequest{Path: r.path, Data: content, Acl: r.acl}
	if version == "" {
		parent := &zk.CreateRequest{Path: parentOf(r.path), Data: []byte{}, Acl: r.acl}
		if err := r.client.createAll(ctx, parent); err != nil {
			return err
		}
	} else {
		v, err := strconv.ParseInt(version, 10, 32)
		if err != nil {
			return fmt.Errorf("version %q of %s: %w", version, r.path, err)
		}
		op = &zk.SetDataRequest{Path: r.path, Data: content, Version: int32(v)}
	}
	switch err := r.client.do(ctx, op); {
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("%s: %w", r.path, registry.ErrConflict)
	case err != nil:
		return fmt.Errorf("write %s: %w", r.path, err)
	}
	return nil
}
