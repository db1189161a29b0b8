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

// A recorder stores small texts of an owner. They outlive a process, and instances end with
// their connection, so that the texts are stored in configurations, one for each kind:
//
//	group xds-bridge, data id xds-bridge.<owner>.<kind>    {"<name>":"<text>", …}
//
// A configuration is changed by compare and swap.
type recorder struct {
	client   *Client
	owner    string
	readBack time.Duration // how long a server's reads lag behind its writes
}

// A Recorder is a registry.Recorder with a trial.
type Recorder interface {
	registry.Recorder

	// TryRecord returns why no record can be kept; nil: records can be.
	TryRecord(ctx context.Context) error
}

// NewRecorder returns a Recorder of an owner for a process that publishes no instances.
// The owner is a fingerprint, as in marks.
func NewRecorder(c *Client, owner string) Recorder {
	return &recorder{c, owner, readBack}
}

func (r *recorder) config(kind string) metadata.NacosConfig {
	return metadata.NacosConfig{
		Namespace: r.client.opts.Namespace, Group: IDGroup, ID: "xds-bridge." + r.owner + "." + kind,
	}
}

// TryRecord reads, writes and removes a configuration, and returns why no texts can be
// stored.
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

// readRecords returns the texts in a configuration, and the content of the configuration,
// which is empty if it does not exist.
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
		return nil, "", fmt.Errorf("%w: configuration %s of group %s: not the JSON of a bridge: %w; delete it",
			registry.ErrRefused, at.ID, at.Group, err)
	}
	return all, text, nil
}

// maxRecords is the limit of a configuration in bytes. A server accepts a content of 10 MiB,
// and a request of 10 MiB, in which each quotation mark is escaped again.
const maxRecords = 4 << 20

// Record implements registry.Recorder. It returns after the server has shown each text: a
// server shows a configuration some time after it confirmed the write. If several processes
// create it at the same time, the server confirms all writes and keeps one.
func (r *recorder) Record(ctx context.Context, kind string, texts map[string]string) error {
	p := pendingRecords{at: r.config(kind), unconfirmed: maps.Clone(texts), refused: make(registry.Refused)}
	look := registry.Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}
	until := time.Now().Add(2 * r.client.opts.Timeout)
	for ; time.Now().Before(until); registry.Sleep(ctx, look.After(p.looks)) {
		p.looks++
		stored, old, err := r.readRecords(ctx, p.at)
		if errors.Is(err, errBeingWritten) {
			continue
		}
		if err != nil {
			return err
		}
		maps.DeleteFunc(p.unconfirmed, func(name, text string) bool { return stored[name] == text })
		if time.Since(p.wrote) >= r.readBack {
			if err := p.write(ctx, r.client, stored, old); err != nil {
				return err
			}
		}
		if len(p.unconfirmed) == 0 {
			return p.refused.Err()
		}
	}
	return fmt.Errorf("configuration %s of group %s: %w: %w", p.at.ID, p.at.Group, registry.ErrConflict, errNotShown)
}

// pendingRecords are texts that are being stored in a configuration.
type pendingRecords struct {
	at          metadata.NacosConfig
	unconfirmed map[string]string // texts that the server has not shown yet
	refused     registry.Refused
	wrote       time.Time // when the server last confirmed a write
	looks       int       // number of reads since then
}

// write adds the unconfirmed texts to the stored ones, unless the configuration has changed
// since it was read.
func (p *pendingRecords) write(ctx context.Context, c *Client, stored map[string]string, old string) error {
	next, refused := registry.MergeRecords(stored, p.unconfirmed, maxRecords)
	maps.DeleteFunc(p.unconfirmed, func(name, _ string) bool { return refused.Has(name) })
	maps.Copy(p.refused, refused)
	if len(p.unconfirmed) == 0 {
		return nil
	}
	err := c.swapConfig(ctx, p.at, old, metadata.JSON(next))
	if errors.Is(err, registry.ErrConflict) {
		return nil // it is read again
	}
	if err == nil {
		p.wrote, p.looks = time.Now(), 1
	}
	return err
}
