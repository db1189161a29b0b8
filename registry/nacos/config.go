package nacos

import (
	"context"
	"crypto/md5" //nolint:gosec // the sum that Nacos compares contents by
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/nacos-group/nacos-sdk-go/v2/common/remote/rpc/rpc_request"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// noSum is a sum that nothing has: compared with it, a server creates a
// configuration and changes none.
const noSum = "00000000000000000000000000000000"

// config returns a configuration, and false where there is none.
func (c *Client) config(ctx context.Context, at metadata.NacosConfig) (string, bool, error) {
	return configBy(at, func(r rpc_request.IRequest, out answer) error {
		_, err := c.call(ctx, r, out)
		return err
	})
}

// configOf is config over one connection.
func configOf(ctx context.Context, cn *conn, at metadata.NacosConfig) (string, bool, error) {
	return configBy(at, func(r rpc_request.IRequest, out answer) error { return cn.ask(ctx, r, out) })
}

func configBy(at metadata.NacosConfig, call func(rpc_request.IRequest, answer) error) (string, bool, error) {
	var out struct {
		response

		Content string `json:"content"`
	}
	err := call(rpc_request.NewConfigQueryRequest(at.Group, at.ID, tenantOf(at)), &out)
	no := (*ResponseError)(nil)
	switch {
	case errors.As(err, &no) && no.ErrorCode == codeNoConfig:
		return "", false, nil
	case errors.As(err, &no) && no.ErrorCode == codeBeingWritten:
		return "", false, fmt.Errorf("read configuration %s of group %s: %w: %w", at.ID, at.Group, errBeingWritten, err)
	case err != nil:
		return "", false, fmt.Errorf("read configuration %s of group %s: %w", at.ID, at.Group, unlessLater(err))
	}
	return out.Content, true, nil
}

// setConfig writes a configuration; with a sum only where its content still
// has it.
func (c *Client) setConfig(ctx context.Context, at metadata.NacosConfig, content, sum string) error {
	r := rpc_request.NewConfigPublishRequest(at.Group, at.ID, tenantOf(at), content, sum)
	r.AdditionMap["type"] = "text"
	if _, err := c.call(ctx, r, new(response)); err != nil {
		return fmt.Errorf("write configuration %s of group %s: %w", at.ID, at.Group, err)
	}
	return nil
}

func (c *Client) removeConfig(ctx context.Context, at metadata.NacosConfig) error {
	if _, err := c.call(ctx, rpc_request.NewConfigRemoveRequest(at.Group, at.ID, tenantOf(at)), new(response)); err != nil {
		return fmt.Errorf("remove configuration %s of group %s: %w", at.ID, at.Group, unlessLater(err))
	}
	return nil
}

// addElement adds a word to a configuration that holds a list of words of many,
// if it is still as it was read.
func (c *Client) addElement(ctx context.Context, at metadata.NacosConfig, element string) error {
	text, _, err := c.config(ctx, at)
	if err != nil || hasElement(text, element) {
		return err
	}
	next := element
	if strings.Trim(text, ", ") != "" {
		next = strings.TrimRight(text, ", ") + "," + element
	}
	return c.swapConfig(ctx, at, text, next)
}

// swapConfig writes a configuration whose content is still the one that was
// read, empty where there was none; else the error is registry.ErrConflict.
func (c *Client) swapConfig(ctx context.Context, at metadata.NacosConfig, old, next string) error {
	sum := noSum
	if old != "" {
		sum = sumOf(old)
	}
	err := c.setConfig(ctx, at, next, sum)
	no := (*ResponseError)(nil)
	if errors.As(err, &no) && !errors.Is(err, ErrDenied) && !errors.Is(err, ErrThrottled) && !errors.Is(err, ErrNotReady) {
		return fmt.Errorf("%w: %w", registry.ErrConflict, err)
	}
	return err
}

func hasElement(text, element string) bool {
	for w := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(w) == element {
			return true
		}
	}
	return false
}

func sumOf(text string) string {
	sum := md5.Sum([]byte(text)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// tenantOf is how configurations name a namespace: unlike services, those of
// the public one have none.
func tenantOf(at metadata.NacosConfig) string {
	if at.Namespace == publicNamespace {
		return ""
	}
	return at.Namespace
}
