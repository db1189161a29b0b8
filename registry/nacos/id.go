package nacos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The configuration in which a namespace keeps its own id. It outlives every connection.
const (
	IDGroup = "xds-bridge"
	IDData  = "xds-bridge.id"
)

// ID returns the id that the client's namespace keeps of itself, of which metadata.Hop makes
// a hop. A namespace without an id stores the offer; if several bridges offer at the same
// time, all get the same one. With an empty offer ID stores nothing, and the result may be
// empty. Run has to run.
func (c *Client) ID(ctx context.Context, offer string) (string, error) {
	id, err := c.id(ctx)
	if id != "" || offer == "" || err != nil && !errors.Is(err, errBeingWritten) {
		return id, err
	}
	var storeErr error
	if err == nil {
		storeErr = permanent(c.setConfig(ctx, c.idConfig(), offer, noSum))
	}
	// The stored id counts, even if another bridge wrote it. A server shows it some time
	// after it has confirmed it.
	const look = 100 * time.Millisecond
	for tries := 1 + int(c.opts.Timeout/look); tries > 0 && ctx.Err() == nil; tries-- {
		if id, err := c.id(ctx); id != "" || err != nil && !errors.Is(err, errBeingWritten) {
			return id, err
		}
		if errors.Is(storeErr, ErrDenied) {
			break
		}
		registry.Sleep(ctx, look)
	}
	return "", fmt.Errorf("store %s of group %s: %w", IDData, IDGroup, cmp.Or(storeErr, ctx.Err(), errNotShown))
}

// errNotShown means that a server confirmed a write and does not show it.
var errNotShown = errors.New("the server does not show the confirmed write")

// id reads the id; empty if there is none.
func (c *Client) id(ctx context.Context) (string, error) {
	text, there, err := readConfig(ctx, c, c.idConfig())
	if err != nil || !there {
		return "", err
	}
	id := strings.TrimSpace(text)
	if id == "" {
		return "", fmt.Errorf("%w: %s of group %s is empty; write an id that no other registry has into it",
			registry.ErrRefused, IDData, IDGroup)
	}
	return id, nil
}

func (c *Client) idConfig() metadata.NacosConfig {
	return metadata.NacosConfig{Namespace: c.opts.Namespace, Group: IDGroup, ID: IDData}
}
