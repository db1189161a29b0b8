package mcp

import (
	"context"
	"sync"
	"time"
)

// Run pushes changes until ctx ends: the first of an idle target at once, its
// followers gathered for Quiet. Beside that it keeps what is served. It returns
// nil.
func (t *Target) Run(ctx context.Context) error {
	var keeping sync.WaitGroup
	defer keeping.Wait()
	if len(t.o.Keep) > 0 {
		keeping.Go(func() { t.keep(ctx) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	rests := time.NewTicker(time.Minute)
	defer rests.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.kick:
		case <-timer.C:
		case now := <-rests.C:
			t.wakeAddresses(now)
		}
		t.confirm()
		if wait := t.o.Quiet - time.Since(last); wait > 0 {
			timer.Reset(wait)
			continue
		}
		if t.push() {
			last = time.Now()
		}
	}
}

// confirm tells of a set that an istiod confirmed, once.
func (t *Target) confirm() {
	t.mu.Lock()
	acked, isNew := t.acked, t.acked != t.told
	t.told = t.acked
	t.mu.Unlock()
	if isNew && t.o.Served != nil {
		t.o.Served(acked.keys())
	}
}

// confirmed notes that an istiod took in a set that it was sent. It may be an
// older one than is served by now: its hosts are known there all the same (V02).
func (t *Target) confirmed(set *snapshot) {
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

// push makes what is held what is served. It reports whether anything had
// changed.
func (t *Target) push() bool {
	o, old := t.replace()
	if old == nil {
		return false
	}
	close(old) // whoever waits looks for itself: nobody is waited for (V01)
	t.o.Observe(o)
	return true
}

// replace makes the set that is served, and returns what is to be told of it
// and those who wait for it; nil where nothing changed.
func (t *Target) replace() (Observation, chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.settled || t.changed.IsZero() {
		return Observation{}, nil
	}
	since := t.changed
	t.changed = time.Time{}
	t.readdress()
	next := t.served.snapshot()
	if t.pushed != nil {
		if next.version == t.pushed.version {
			return Observation{}, nil
		}
		next.number = t.pushed.number + 1
	}
	old := t.next
	t.pushed, t.next = next, make(chan struct{})
	return Observation{Kind: ObservedPush, Count: len(next.content), Latency: time.Since(since)}, old
}
