package nacos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

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
