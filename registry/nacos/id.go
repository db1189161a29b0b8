package nacos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/common/remote/rpc/rpc_request"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Where a namespace keeps its own id: in a configuration, which outlives every
// connection.
const (
	IDGroup = "xds-bridge"
	IDData  = "xds-bridge.id"
)

// What a server answers of a configuration that does not exist, and of one that
// is being written; source: com.alibaba.nacos.api.config.remote.response.ConfigQueryResponse.
const (
	codeNoConfig     = 300
	codeBeingWritten = 400
)

var errBeingWritten = errors.New("it is being written")

// ID returns the id that the client's namespace keeps of itself, from which
// metadata.Hop makes the hop that stands for it in a path. Where it keeps
// none, it keeps offer from now on; of several bridges that come first at the
// same time, one wins for all. An empty offer leaves it without, and then none
// is returned. Run must be running.
func (c *Client) ID(ctx context.Context, offer string) (string, error) {
	id, err := c.id(ctx)
	if id != "" || offer == "" || err != nil && !errors.Is(err, errBeingWritten) {
		return id, err
	}
	var kept error
	if err == nil {
		kept = c.keepID(ctx, offer)
	}
	// What is there now counts, whoever wrote it. A server shows it some time
	// after it has confirmed it.
	const look = 100 * time.Millisecond
	for tries := 1 + int(c.opts.Timeout/look); tries > 0 && ctx.Err() == nil; tries-- {
		if id, err := c.id(ctx); id != "" || err != nil && !errors.Is(err, errBeingWritten) {
			return id, err
		}
		if errors.Is(kept, ErrDenied) {
			break // and so nobody's
		}
		c.pause(ctx, look)
	}
	return "", fmt.Errorf("keep %s of group %s: %w", IDData, IDGroup, cmp.Or(kept, ctx.Err(), errors.New("the server does not show what it confirmed")))
}

// id reads the id, empty where there is none.
func (c *Client) id(ctx context.Context) (string, error) {
	var out struct {
		response

		Content string `json:"content"`
	}
	_, err := c.call(ctx, rpc_request.NewConfigQueryRequest(IDGroup, IDData, c.tenant()), &out)
	answer := (*ResponseError)(nil)
	switch {
	case errors.As(err, &answer) && answer.ErrorCode == codeNoConfig:
		return "", nil
	case errors.As(err, &answer) && answer.ErrorCode == codeBeingWritten:
		return "", fmt.Errorf("read %s of group %s: %w", IDData, IDGroup, errBeingWritten)
	case err != nil:
		return "", fmt.Errorf("read %s of group %s: %w", IDData, IDGroup, unlessLater(err))
	}
	id := strings.TrimSpace(out.Content)
	if id == "" {
		return "", fmt.Errorf("%w: %s of group %s is empty; write an id that no other registry has into it", registry.ErrRefused, IDData, IDGroup)
	}
	return id, nil
}

// keepID writes the id where there is none: a comparison with a sum that
// nothing has lets a server create a configuration and change none.
func (c *Client) keepID(ctx context.Context, id string) error {
	r := rpc_request.NewConfigPublishRequest(IDGroup, IDData, c.tenant(), id, strings.Repeat("0", 32))
	r.AdditionMap["type"] = "text"
	_, err := c.call(ctx, r, &response{})
	return unlessLater(err)
}

// tenant is how configurations name the namespace: unlike services, those of
// the public one have none.
func (c *Client) tenant() string {
	if c.opts.Namespace == publicNamespace {
		return ""
	}
	return c.opts.Namespace
}

// unlessLater marks an answer as a refusal that will be the same later, such
// as that of a server which keeps no configurations.
func unlessLater(err error) error {
	answer := (*ResponseError)(nil)
	if errors.As(err, &answer) && !errors.Is(err, ErrNotReady) && !errors.Is(err, ErrThrottled) && !errors.Is(err, registry.ErrRefused) {
		return fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	return err
}
