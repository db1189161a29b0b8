package nacos

import (
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // the sum that Nacos compares contents by
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

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

// A recorder keeps records of an owner. Instances go with the connection that
// published them, so what has to outlive a process is kept in configurations,
// one for each kind of records:
//
//	group xds-bridge, data id xds-bridge.<owner>.<kind>    {"<name>":"<text>", …}
//
// Each is changed by compare and swap.
type recorder struct {
	client   *Client
	owner    string
	readBack time.Duration // how long a server's reads lag behind its writes
}

// A Recorder is a registry.Recorder that can be tried.
type Recorder interface {
	registry.Recorder

	// TryRecord returns why no record can be kept; nil: records can be.
	TryRecord(ctx context.Context) error
}

// NewRecorder returns a Recorder of an owner, a fingerprint as in marks, that
// publishes no instances.
func NewRecorder(c *Client, owner string) Recorder {
	return &recorder{c, owner, readBack}
}

func (r *recorder) config(kind string) metadata.NacosConfig {
	return metadata.NacosConfig{Namespace: r.client.opts.Namespace, Group: IDGroup, ID: "xds-bridge." + r.owner + "." + kind}
}

// TryRecord reports whether records can be kept. It reads, writes and removes a
// configuration.
func (r *recorder) TryRecord(ctx context.Context) error {
	at := r.config("preflight")
	if _, _, err := readConfig(ctx, r.client, at); err != nil {
		return err
	}
	if err := r.client.setConfig(ctx, at, "{}", ""); err != nil {
		return err
	}
	return r.client.removeConfig(ctx, at)
}

// Records implements registry.Recorder.
func (r *recorder) Records(ctx context.Context, kind string) (map[string]string, error) {
	all, _, err := r.readRecords(ctx, r.config(kind))
	return all, err
}

// readRecords returns the records in a configuration and its text, which is
// empty if there is none.
func (r *recorder) readRecords(ctx context.Context, at metadata.NacosConfig) (map[string]string, string, error) {
	text, there, err := readConfig(ctx, r.client, at)
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

// maxRecords is how many bytes a configuration of records may have. A server accepts a
// content and a request of 10 MiB, in which each quotation mark is escaped once more.
const maxRecords = 4 << 20

// Record implements registry.Recorder. It returns once the server has shown each text. A
// server shows a configuration some time after it confirmed it. Of several that are
// created at the same time it confirms all and keeps one.
func (r *recorder) Record(ctx context.Context, kind string, texts map[string]string) error {
	p := pendingRecords{at: r.config(kind), left: maps.Clone(texts), refused: make(registry.Refused)}
	look := registry.Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}
	for until := time.Now().Add(2 * r.client.opts.Timeout); time.Now().Before(until); registry.Sleep(ctx, look.After(p.looks)) {
		p.looks++
		kept, old, err := r.readRecords(ctx, p.at)
		if errors.Is(err, errBeingWritten) {
			continue
		}
		if err != nil {
			return err
		}
		maps.DeleteFunc(p.left, func(name, text string) bool { return kept[name] == text })
		if time.Since(p.wrote) >= r.readBack {
			if err := p.write(ctx, r.client, kept, old); err != nil {
				return err
			}
		}
		if len(p.left) == 0 {
			return p.refused.Err()
		}
	}
	return fmt.Errorf("configuration %s of group %s: %w: the server does not show what it confirmed", p.at.ID, p.at.Group, registry.ErrConflict)
}

// pendingRecords are texts that are being stored in a configuration.
type pendingRecords struct {
	at      metadata.NacosConfig
	left    map[string]string // that the server has not shown yet
	refused registry.Refused
	wrote   time.Time // when the server last confirmed them
	looks   int       // since then
}

// write writes what is left beside what was read, unless that has changed since.
func (p *pendingRecords) write(ctx context.Context, c *Client, kept map[string]string, old string) error {
	next, refused := registry.MergeRecords(kept, p.left, maxRecords)
	maps.DeleteFunc(p.left, func(name, _ string) bool { return refused.Has(name) })
	maps.Copy(p.refused, refused)
	if len(p.left) == 0 {
		return nil
	}
	err := c.swapConfig(ctx, p.at, old, metadata.JSON(next))
	if errors.Is(err, registry.ErrConflict) {
		return nil // it is read once more
	}
	if err == nil {
		p.wrote, p.looks = time.Now(), 1
	}
	return err
}
