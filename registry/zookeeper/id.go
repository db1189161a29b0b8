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

// ID returns the id that the registry keeps of itself. metadata.Hop makes of it the hop
// that identifies the registry in a path. A registry without an id stores the offer; if
// several bridges offer at the same time, all get the same one. With an empty offer ID
// stores nothing, and returns no id, or why none could be stored.
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
		if access == Private { // bridges of other users read it
			op.Acl = append(op.Acl, zk.WorldACL(zk.PermRead)...)
		}
		if err := c.createAll(ctx, op); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%w: %s was deleted right after it was created", registry.ErrConflict, IDNode)
}
