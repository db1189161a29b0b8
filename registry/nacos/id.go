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

// The configuration in which a namespace keeps its own id. It outlives every
// connection.
const (
	IDGroup = "xds-bridge"
	IDData  = "xds-bridge.id"
)

// ID returns the id that the client's namespace keeps of itself, of which
// metadata.Hop makes a hop. If there is none, it is set to offer; of several
// bridges that offer one at the same time, one wins. If offer is empty too, so
// is the result. Run has to run.
func (c *Client) ID(ctx context.Context, offer string) (string, error) {
	id, err := c.id(ctx)
	if id != "" || offer == "" || err != nil && !errors.Is(err, errBeingWritten) {
		return id, err
	}
	var kept error
	if err == nil {
		kept = permanent(c.setConfig(ctx, c.idConfig(), offer, noSum))
	}
	// The id that is there now counts, whoever wrote it. A server shows it some
	// time after it has confirmed it.
	const look = 100 * time.Millisecond
	for tries := 1 + int(c.opts.Timeout/look); tries > 0 && ctx.Err() == nil; tries-- {
		if id, err := c.id(ctx); id != "" || err != nil && !errors.Is(err, errBeingWritten) {
			return id, err
		}
		if errors.Is(kept, ErrDenied) {
			break
		}
		registry.Sleep(ctx, look)
	}
	return "", fmt.Errorf("keep %s of group %s: %w", IDData, IDGroup, cmp.Or(kept, ctx.Err(), errors.New("the server does not show what it confirmed")))
}

// id reads the id, empty if there is none.
func (c *Client) id(ctx context.Context) (string, error) {
	text, there, err := readConfig(ctx, c, c.idConfig())
	if err != nil || !there {
		return "", err
	}
	id := strings.TrimSpace(text)
	if id == "" {
		return "", fmt.Errorf("%w: %s of group %s is empty; write an id that no other registry has into it", registry.ErrRefused, IDData, IDGroup)
	}
	return id, nil
}

func (c *Client) idConfig() metadata.NacosConfig {
	return metadata.NacosConfig{Namespace: c.opts.Namespace, Group: IDGroup, ID: IDData}
}
