package nacos

import (
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // the sum that Nacos compares contents by
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

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

// Instances go with the connection that published them, so that what has to
// outlive a process is kept in configurations: of each kind of records one,
//
//	group xds-bridge, data id xds-bridge.<owner>.<kind>    {"<name>":"<text>", …}
//
// which is changed by compare and swap.
func (t *Target) records(kind string) metadata.NacosConfig {
	return metadata.NacosConfig{Namespace: t.client.opts.Namespace, Group: IDGroup, ID: "xds-bridge." + t.opts.Owner + "." + kind}
}

// NewRecorder returns what keeps records of an owner, a fingerprint as marks
// have it, for who publishes no instances there.
func NewRecorder(c *Client, owner string) registry.Recorder {
	t := &Target{client: c, opts: TargetOptions{Owner: owner}}
	set(&t.opts.ReadBack, time.Second)
	return t
}

// TryRecord reports whether records can be kept, by a configuration that it
// reads, makes and removes.
func (t *Target) TryRecord(ctx context.Context) error {
	at := t.records("preflight")
	if _, _, err := t.client.config(ctx, at); err != nil {
		return err
	}
	if err := t.client.setConfig(ctx, at, "{}", ""); err != nil {
		return err
	}
	return t.client.removeConfig(ctx, at)
}

// Records implements registry.Recorder.
func (t *Target) Records(ctx context.Context, kind string) (map[string]string, error) {
	all, _, err := t.readRecords(ctx, t.records(kind))
	return all, err
}

// readRecords returns what a configuration holds, and its text; the text is
// empty where there is none.
func (t *Target) readRecords(ctx context.Context, at metadata.NacosConfig) (map[string]string, string, error) {
	text, there, err := t.client.config(ctx, at)
	if err != nil {
		return nil, "", err
	}
	all := make(map[string]string)
	if !there {
		return all, "", nil
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, "", fmt.Errorf("%w: configuration %s of group %s holds no records (%w); delete it", registry.ErrRefused, at.ID, at.Group, err)
	}
	return all, text, nil
}

// Record implements registry.Recorder. It returns once the server shows the
// text: a server shows a configuration some time after it confirmed it, and of
// several that make it at the same time it confirms all and keeps one.
func (t *Target) Record(ctx context.Context, kind, name, text string) error {
	const look = 100 * time.Millisecond
	at := t.records(kind)
	var wrote time.Time
	for range 1 + int(2*t.client.opts.Timeout/look) {
		all, old, err := t.readRecords(ctx, at)
		if errors.Is(err, errBeingWritten) {
			t.client.pause(ctx, look)
			continue
		}
		if err != nil || all[name] == text {
			return err
		}
		if time.Since(wrote) >= t.opts.ReadBack {
			all[name] = text
			if text == "" {
				delete(all, name)
			}
			next, err := json.Marshal(all)
			if err != nil {
				return fmt.Errorf("records: %w", err)
			}
			switch err := t.client.swapConfig(ctx, at, old, string(next)); {
			case err == nil:
				wrote = time.Now()
			case !errors.Is(err, registry.ErrConflict):
				return err
			}
		}
		t.client.pause(ctx, look)
	}
	return fmt.Errorf("configuration %s of group %s: %w: the server does not show what it confirmed", at.ID, at.Group, registry.ErrConflict)
}
