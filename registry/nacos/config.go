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

// noSum is a sum that no content has: compared with it, a server creates a
// configuration and changes none.
const noSum = "00000000000000000000000000000000"

// What a server answers of a configuration that does not exist, and of one that
// is being written; source: com.alibaba.nacos.api.config.remote.response.ConfigQueryResponse.
const (
	codeNoConfig     = 300
	codeBeingWritten = 400
)

var errBeingWritten = errors.New("it is being written")

// readConfig returns a configuration, and false if there is none.
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

// setConfig writes a configuration; with a sum only if its content still has it.
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
		return fmt.Errorf("remove configuration %s of group %s: %w", at.ID, at.Group, permanent(err))
	}
	return nil
}

// addElement adds an element to a list that many write, if the list is still as
// it was read.
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

// swapConfig writes a configuration whose content is still the one that was
// read, empty if there was none. Else the error is registry.ErrConflict.
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

// tenantOf returns the namespace as configurations have it: unlike services, the
// public one is empty.
func tenantOf(at metadata.NacosConfig) string {
	if at.Namespace == publicNamespace {
		return ""
	}
	return at.Namespace
}

// isAnswer reports whether a server answered with an error, and not because of its
// load or its start.
func isAnswer(err error) bool {
	_, answered := errors.AsType[*ResponseError](err)
	return answered && !errors.Is(err, ErrNotReady) && !errors.Is(err, ErrThrottled)
}

// permanent marks an answer as a refusal if a repetition cannot help, as with a
// server that keeps no configurations.
func permanent(err error) error {
	if isAnswer(err) && !errors.Is(err, registry.ErrRefused) {
		return fmt.Errorf("%w: %w", registry.ErrRefused, err)
	}
	return err
}
