package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// IDNode is where a registry keeps its own id.
const IDNode = home + "/id"

// ID returns the id that the registry keeps of itself, from which metadata.Hop
// makes the hop that stands for it in a path. Where it keeps none, it keeps
// offer from now on; of several bridges that come first at the same time, one
// wins for all. An empty offer leaves it without: then none is returned, or why
// none could be made.
func (c *Client) ID(ctx context.Context, offer string, access Access) (string, error) {
	for range 2 {
		n, err := c.get(ctx, IDNode)
		if err == nil {
			id := strings.TrimSpace(string(n.data))
			if id == "" {
				return "", fmt.Errorf("%w: %s is empty; write an id that no other registry has into it", registry.ErrRefused, IDNode)
			}
			return id, nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return "", fmt.Errorf("read %s: %w", IDNode, err)
		}
		if offer == "" {
			return "", c.mayMake(ctx, IDNode)
		}
		op := &zk.CreateRequest{Path: IDNode, Data: []byte(offer), Acl: access.acl()}
		if access == Private { // it is every bridge's to read
			op.Acl = append(op.Acl, zk.WorldACL(zk.PermRead)...)
		}
		if err := c.make(ctx, op); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%w: %s was deleted as soon as it was made", registry.ErrConflict, IDNode)
}

// make makes a node and those above it; it is no error if there is one. Those
// of the bridge's own are for whom the node is for.
func (c *Client) make(ctx context.Context, op *zk.CreateRequest) error {
	_, err := c.multi(ctx, []any{op})
	if errors.Is(err, zk.ErrNoNode) {
		parent := &zk.CreateRequest{Path: parentOf(op.Path), Data: []byte{}, Acl: aclAbove(parentOf(op.Path), op.Acl)}
		if err := c.make(ctx, parent); err != nil {
			return err
		}
		_, err = c.multi(ctx, []any{op})
	}
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("make %s: %w", op.Path, err)
	}
	return nil
}
