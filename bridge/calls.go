package bridge

import (
	"context"
	"fmt"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// recent is how old a reading may be that a leftover is deleted by.
const recent = time.Second

// A step is one call to the target.
type step struct {
	name  string
	call  func(context.Context, *outcome)
	until time.Time // after which it must not go on; zero: no such time
}

// The steps, as logs and observations call them.
const (
	stepList  = "list"
	stepRead  = "read"
	stepWrite = "write"

	stepConsult = "consult" // of records, see decision.go
)

// An outcome is what came of a step.
type outcome struct {
	step   string
	item   *item
	began  time.Time
	first  time.Time // when the first of the changes written was seen
	groups []registry.Group
	held   []registry.Held
	change registry.Change
	err    error

	consulted consultation
}

// dispatch starts the calls that are due, as many as may run at a time.
func (l *loop) dispatch(ctx context.Context) {
	for l.calls < l.budget.calls() {
		now := time.Now()
		if now.Before(l.budget.opens()) {
			return
		}
		it := l.agenda.take(now)
		if it == nil {
			return
		}
		s, ok := l.next(it, now)
		if !ok {
			l.rest(it, now)
			continue
		}
		l.calls++
		l.budget.spend(now)
		timeout := l.opts.Timeout // which Tune may change
		go func() {
			o := outcome{step: s.name, item: it, began: now}
			s.within(ctx, timeout, &o)
			l.outcomes <- o
		}()
	}
}

// within makes the call and gives it up after the timeout, so that a target
// that never answers keeps no worker.
func (s step) within(ctx context.Context, timeout time.Duration, o *outcome) {
	deadline := time.Now().Add(timeout)
	if !s.until.IsZero() {
		deadline = earlier(deadline, s.until)
	}
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	s.call(limited, o)
	if o.err != nil && limited.Err() != nil && ctx.Err() == nil {
		o.err = fmt.Errorf("not done within %s: %w", timeout, o.err)
	}
}

// next decides what to do about a group that is due: list, read, write, or
// nothing.
func (l *loop) next(it *item, now time.Time) (step, bool) {
	if it.group.IsZero() {
		return step{name: stepList, call: func(ctx context.Context, o *outcome) { o.groups, o.err = l.target.Groups(ctx) }}, true
	}
	read := step{name: stepRead, call: func(ctx context.Context, o *outcome) { o.held, o.err = l.target.Read(ctx, it.group) }}
	if !l.trusted(it, now) {
		return read, true
	}
	lead := l.leadership()
	if lead.Role != RoleLeader && !l.shared {
		it.refusals = nil // the leader finds them out
		return step{}, false
	}
	change := l.beside(l.withhold(it, l.permit(it, now), now))
	if change.Empty() || l.dry {
		return step{}, false
	}
	if now.Sub(it.readAt) > recent && it.removesLeftover(change) {
		return read, true
	}
	first := it.change.begin(now, l.agenda.maxQuiet)
	if first.IsZero() {
		first = now
	}
	write := step{name: stepWrite, call: func(ctx context.Context, o *outcome) {
		o.first, o.change = first, change
		o.err = l.target.Write(ctx, change)
	}}
	if !l.shared {
		write.until = lead.Until
	}
	return write, true
}

// trusted reports whether what is believed of a group needs no reading. For a
// change it is trusted longer, so that changes need not wait for a refresh
// that is late.
func (l *loop) trusted(it *item, now time.Time) bool {
	switch {
	case it.readAt.IsZero():
		return false
	case it.change.pending():
		return now.Sub(it.readAt) < 2*l.opts.Refresh
	case it.unchecked() && !now.Before(it.checkAt):
		return false
	}
	return now.Before(l.refreshes(it))
}

// refreshes returns when a group is to be read again without a cause. Of one in
// which entries of others are in the way nobody tells when they go: the longer
// it has been so, the less often it is looked at.
func (l *loop) refreshes(it *item) time.Time {
	wait := spread(it.group, l.opts.Refresh)
	if !it.yielded.IsZero() {
		wait = min(wait, max(l.opts.Retry.Max, it.readAt.Sub(it.yielded)))
	}
	return it.readAt.Add(wait)
}

func (it *item) removesLeftover(c registry.Change) bool {
	for _, h := range c.Delete {
		if o := it.orphans[h.Key]; o != nil && o.missing() {
			return true
		}
	}
	return false
}
