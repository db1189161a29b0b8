package mcp

import (
	"context"
	"sync"
	"time"
)

// Run pushes changes until ctx ends: the first of an idle target at once, its
// followers gathered for Debounce, and hosts that are new once they are kept.
// Beside that it keeps what else changes. It returns nil.
func (t *Target) Run(ctx context.Context) error {
	var keeping sync.WaitGroup
	defer keeping.Wait()
	if len(t.o.Keep) > 0 {
		keeping.Go(func() { t.keep(ctx) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	release := time.NewTicker(time.Minute)
	defer release.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.kick:
		case <-timer.C:
		case now := <-release.C:
			t.releaseAddresses(now)
		}
		t.reportConfirmed()
		if wait := t.o.Debounce - time.Since(last); wait > 0 {
			timer.Reset(wait)
			continue
		}
		if t.push(ctx) {
			last = time.Now()
		}
	}
}

// reportConfirmed reports a set that an istiod confirmed, once.
func (t *Target) reportConfirmed() {
	t.mu.Lock()
	acked, isNew := t.acked, t.acked != t.reported
	t.reported = t.acked
	t.mu.Unlock()
	if isNew && t.o.Confirmed != nil {
		t.o.Confirmed(acked.keys())
	}
}

// noteConfirmed notes that an istiod took in a set that it was sent. It may be an
// older one than is served by now: its hosts are known there all the same.
func (t *Target) noteConfirmed(set *snapshot) {
	t.mu.Lock()
	newer := t.acked == nil || set.number > t.acked.number
	if newer {
		t.acked = set
	}
	t.mu.Unlock()
	if newer {
		t.wake()
	}
}

// current returns the set that is served, nil before the first, and what is
// ready once there is another.
func (t *Target) current() (*snapshot, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pushed, t.next
}

// push makes what is held what is served, once the records have the hosts that
// are new in it. It reports whether anything had changed.
func (t *Target) push(ctx context.Context) bool {
	next, since, added := t.due()
	if next == nil {
		return false
	}
	t.storeBeforePush(ctx, added)
	t.mu.Lock()
	old := t.next
	t.pushed, t.next = next, make(chan struct{})
	t.mu.Unlock()
	close(old) // whoever waits looks for itself: nobody is waited for
	t.o.Observe(Observation{Kind: ObservedPush, Count: len(next.content), Latency: time.Since(since)})
	return true
}

// due returns the set that is to be served, since when it is, and the buckets
// in which a host is new; nil where nothing changed.
func (t *Target) due() (next *snapshot, since time.Time, added map[int]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sourcesComplete || t.changed.IsZero() {
		return nil, time.Time{}, nil
	}
	since, added = t.changed, t.added
	t.changed, t.added = time.Time{}, make(map[int]bool)
	t.readdress()
	next = t.served.snapshot()
	if t.pushed != nil {
		if next.version == t.pushed.version {
			return nil, time.Time{}, nil
		}
		next.number = t.pushed.number + 1
	}
	return next, since, added
}
