package zookeeper

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// IDNode is the node of a registry's own id.
const IDNode = homeRoot + "/id"

// ID returns the id that the registry keeps of itself, from which metadata.Hop
// makes the hop that identifies it in a path. A registry without one keeps offer
// from now on; of several bridges that come first at the same time, one wins for
// all. An empty offer stores none: then ID returns none, or why none could be stored.
func (c *Client) ID(ctx context.Context, offer string, access Access) (string, error) {
	for range 2 {
		n, err := c.read(ctx, IDNode)
		id := strings.TrimSpace(string(n.data))
		switch {
		case err != nil || id != "":
			return id, err
		case n.stat != nil:
			return "", fmt.Errorf("%w: %s is empty; write an id that no other registry has into it", registry.ErrRefused, IDNode)
		case offer == "":
			return "", c.checkCreate(ctx, IDNode)
		}
		op := &zk.CreateRequest{Path: IDNode, Data: []byte(offer), Acl: access.acl()}
		if access == Private { // every bridge may read it
			op.Acl = append(op.Acl, zk.WorldACL(zk.PermRead)...)
		}
		if err := c.createAll(ctx, op); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%w: %s was deleted as soon as it was created", registry.ErrConflict, IDNode)
}
