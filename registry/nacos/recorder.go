package nacos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

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

// NewRecorder returns a recorder of an owner, a fingerprint as in marks, that
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
