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

// noSum is a sum that no content has. With it a server creates a configuration and changes
// none.
const noSum = "00000000000000000000000000000000"

// The error codes for a configuration that does not exist, and for one that is being written,
// of com.alibaba.nacos.api.config.remote.response.ConfigQueryResponse.
const (
	codeNoConfig     = 300
	codeBeingWritten = 400
)

var errBeingWritten = errors.New("it is being written")

// readConfig returns the content of a configuration, or false if it does not exist.
func readConfig(ctx context.Context, over asker, at metadata.NacosConfig) (string, bool, error) {
	var out struct {
		response

		Content string `json:"content"`
	}
	err := over.ask(ctx, rpc_request.NewConfigQueryRequest(at.Group, at.ID, tenantOf(at)), &out)
	refusal, refused := errors.AsType[*ResponseError](err)
	switch {
	case refused && refusal.ErrorCode == codeNoConfig:
		return "", false, nil
	case refused && refusal.ErrorCode == codeBeingWritten:
		return "", false, fmt.Errorf("read configuration %s of group %s: %w: %w", at.ID, at.Group, errBeingWritten, err)
	case err != nil:
		return "", false, fmt.Errorf("read configuration %s of group %s: %w", at.ID, at.Group, permanent(err))
	}
	return out.Content, true, nil
}

// setConfig writes a configuration. With a sum it writes only if the content has this sum.
func (c *Client) setConfig(ctx context.Context, at metadata.NacosConfig, content, sum string) error {
	r := rpc_request.NewConfigPublishRequest(at.Group, at.ID, tenantOf(at), content, sum)
	r.AdditionMap["type"] = "text"
	if _, err := c.call(ctx, r, new(response)); err != nil {
		return fmt.Errorf("write configuration %s of group %s: %w", at.ID, at.Group, err)
	}
	return nil
}

func (c *Client) removeConfig(ctx context.Context, at metadata.NacosConfig) error {
	r := rpc_request.NewConfigRemoveRequest(at.Group, at.ID, tenantOf(at))
	if _, err := c.call(ctx, r, new(response)); err != nil {
		return fmt.Errorf("remove configuration %s of group %s: %w", at.ID, at.Group, permanent(err))
	}
	return nil
}

// addElement adds an element to a list that several processes write, if the list has not
// changed since it was read.
func (c *Client) addElement(ctx context.Context, at metadata.NacosConfig, element string) error {
	text, _, err := readConfig(ctx, c, at)
	if err != nil || hasElement(text, element) {
		return err
	}
	next := element
	if strings.Trim(text, ", ") != "" {
		next = strings.TrimRight(text, ", ") + "," + element
	}
	return c.swapConfig(ctx, at, text, next)
}

// swapConfig replaces the old content of a configuration, empty if it does not exist. If it
// has another content now, the error is registry.ErrConflict.
func (c *Client) swapConfig(ctx context.Context, at metadata.NacosConfig, old, next string) error {
	sum := noSum
	if old != "" {
		sum = sumOf(old)
	}
	err := c.setConfig(ctx, at, next, sum)
	if isAnswer(err) && !errors.Is(err, ErrDenied) {
		return fmt.Errorf("%w: %w", registry.ErrConflict, err)
	}
	return err
}

func hasElement(text, element string) bool {
	for e := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(e) == element {
			return true
		}
	}
	return false
}

func sumOf(text string) string {
	sum := md5.Sum([]byte(text)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// tenantOf returns the namespace as configurations have it. In contrast to services, the
// public namespace is empty.
func tenantOf(at metadata.NacosConfig) string {
	if at.Namespace == publicNamespace {
		return ""
	}
	return at.Namespace
}

// isAnswer reports whether a server answered with an error that is not due to its load or its
// start.
func isAnswer(err error) bool {
	_, answered := errors.AsType[*ResponseError](err)
	return answered && !errors.Is(err, ErrNotReady) && !errors.Is(err, ErrThrottled)
}

// permanent marks an answer as a refusal if a retry does not help, such as that of a server
// without configurations.
func permanent(err error) error {
	if isAnswer(err) && !errors.Is(err, registry.ErrRefused) {
		return fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	return err
}
