package zookeeper

import (
	"context"
	"net/url"

	"github.com/go-zookeeper/zk"
)

// The nodes that bridges keep for themselves:
//
//	/xds-bridge/id                  the registry's own id, created once by the first bridge
//	/xds-bridge/<owner>/alive       ephemeral, exists while a bridge of the owner runs
//	/xds-bridge/<owner>/bridges     which bridges wrote as the owner, to detect that the owner was changed
//	/xds-bridge/<owner>/ledger/…    the tags of its entries, see ledger
//	/xds-bridge/<owner>/leases/…    which replica leads each target of the owner, see LeaseStore
//	/xds-bridge/<owner>/fence       which replica may write here, and in which term, see Fence
//	/xds-bridge/<owner>/session     exists once a bridge of the owner has written ephemeral entries
//	/xds-bridge/<owner>/<kind>/…    the texts of a kind, see registry.Recorder
//	/xds-bridge/<owner>/probe-<x>   ephemeral, created and deleted by Check
const (
	homeRoot    = "/xds-bridge"
	aliveNode   = "alive"
	bridgesNode = "bridges"
	ledgerNode  = "ledger"
	leasesNode  = "leases"
	fenceNode   = "fence"
	sessionNode = "session"
)

func homePath(owner string) string { return homeRoot + "/" + url.PathEscape(owner) }

// A home is the nodes that the bridges of an owner keep for themselves.
type home struct {
	client *Client
	path   string
	acl    []zk.ACL
}

func newHome(client *Client, owner string, access Access) *home {
	return &home{client, homePath(owner), access.acl()}
}

func (h *home) node(name string) string { return h.path + "/" + name }

func (h *home) request(name, data string, flags int32) *zk.CreateRequest {
	return &zk.CreateRequest{Path: h.node(name), Data: []byte(data), Acl: h.acl, Flags: flags}
}

func (h *home) exists(ctx context.Context, name string) (bool, error) {
	stat, err := h.client.exists(ctx, h.node(name))
	return stat != nil, err
}
