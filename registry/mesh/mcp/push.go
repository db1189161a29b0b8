package mcp

import (
	"context"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Run pushes changes until ctx ends: the first of an idle target at once, its
// followers gathered for Quiet. It returns nil.
func (t *Target) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			t.save()
			return nil
		case <-t.kick:
		case <-timer.C:
		}
		t.confirm()
		if wait := t.o.Quiet - time.Since(last); wait > 0 {
			timer.Reset(wait)
			continue
		}
		if t.push() {
			last = time.Now()
			t.save()
		}
	}
}

// confirm tells of a set that an istiod confirmed, once.
func (t *Target) confirm() {
	t.mu.Lock()
	acked, isNew := t.acked, t.acked.version != t.told
	t.told = t.acked.version
	t.mu.Unlock()
	if isNew && t.o.Served != nil {
		t.o.Served(acked.keys())
	}
}

// push makes what is held what is served, and answers whoever waits for it.
// It reports whether anything had changed.
func (t *Target) push() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.settled || t.changed.IsZero() {
		return false
	}
	since := t.changed
	t.changed = time.Time{}
	next := t.served.snapshot()
	if next.version == t.pushed.version {
		return false
	}
	t.pushed = next
	waiting := 0
	for w := range t.watches {
		if w.ours {
			t.answer(w)
			waiting++
		}
	}
	t.o.Observe(Observation{Kind: ObservedPush, Count: len(next.content), Waiting: waiting, Latency: time.Since(since)})
	return true
}

// save keeps what is held for the next start.
func (t *Target) save() {
	if t.o.State == nil {
		return
	}
	t.mu.Lock()
	var entries []registry.Entry
	if t.settled {
		for name, g := range t.groups {
			for _, e := range g.entries {
				entries = append(entries, registry.Entry{Group: name, Key: e.key, Value: e.value})
			}
		}
	}
	settled := t.settled
	t.mu.Unlock()
	if !settled {
		return
	}
	if err := t.o.State.Save(entries); err != nil {
		t.o.Observe(Observation{Kind: ObservedState, Err: err})
	}
}
