package debug

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// Run reads until ctx ends, and returns nil once its goroutines ended. It calls
// changed from one goroutine: after the first reading, or its failure, and then
// whenever the snapshot changes. A failed reading does not change the mapping.
func (r *Reader) Run(ctx context.Context, changed func(Snapshot)) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &readerLoop{
		o:        &r.o,
		results:  make(chan pollResult),
		claims:   newClaimSet(r.o.Grace, r.o.ConnectionGrace),
		replicas: make(map[string]*polledReplica),
	}
	listings := make(chan Listing)
	s.group.Go(func() { List(ctx, s.o.Replicas, s.o.Interval, s.o.Timeout, listings) })
	defer s.group.Wait()
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-listings:
			s.setListing(ctx, l)
		case res := <-s.results:
			s.setResult(res)
		}
		if s.dirty {
			s.dirty = false
			s.publish(changed)
		}
	}
}

// readerLoop is what Run's goroutine owns. Nothing else touches it.
type readerLoop struct {
	o         *Options
	group     sync.WaitGroup
	results   chan pollResult
	claims    *claimSet
	replicas  map[string]*polledReplica
	listErr   error
	published *Snapshot
	dirty     bool // something changed since publish
}

// publish updates the claims and reports a snapshot that differs from the last.
func (l *readerLoop) publish(changed func(Snapshot)) {
	now := time.Now()
	next := Snapshot{Complete: len(l.replicas) > 0, At: now}
	errs, answered := []error{l.listErr}, false
	for _, address := range slices.Sorted(maps.Keys(l.replicas)) {
		r := l.replicas[address]
		answered = answered || r.reading != nil
		if !r.isUsed() {
			continue
		}
		status := r.status(l.o.OwnNodes)
		next.Replicas = append(next.Replicas, status)
		next.Complete = next.Complete && status.Answered
		errs = append(errs, r.err)
	}
	next.Err = errors.Join(errs...)
	next.Unread = l.unread()
	l.claims.notBefore = l.latestStart().Add(l.o.ConnectionGrace)
	l.claims.update(l.clients(), readingCertainty{complete: next.Complete, fresh: next.Err == nil, asOf: l.asOf()}, now)
	if now.Before(l.claims.notBefore) {
		next.Restarting = l.claims.notBefore
	}
	l.logRestart(!next.Restarting.IsZero())
	next.Mapping, next.Waiting = l.claims.mapping(), l.claims.absentCount
	next.SetSkipped(l.skipped())
	if l.published == nil && next.Err == nil && !answered {
		return // nothing is known yet, and nothing failed
	}
	if l.published == nil || next.differs(l.published) {
		l.published = &next
		changed(next)
	}
}

// logRestart logs when clients begin to be waited for, and when that ends.
func (l *readerLoop) logRestart(now bool) {
	before := l.published != nil && !l.published.Restarting.IsZero()
	switch {
	case now && !before:
		l.o.Log.Info("a replica of istiod came up lately, keys are kept until its clients come back", "until", l.claims.notBefore)
	case before && !now:
		l.o.Log.Info("the clients of istiod had the time to come back")
	}
}

// isDue reports whether the time has come for a claim, or for the wait, to end.
func (l *readerLoop) isDue(now time.Time) bool {
	next := l.claims.nextEnd
	return !next.IsZero() && !l.asOf().Before(next) || l.published != nil && !l.published.Restarting.IsZero() && !now.Before(l.claims.notBefore)
}

// asOf returns the time of the oldest among the last readings of the replicas that
// answer.
func (l *readerLoop) asOf() time.Time {
	var oldest time.Time
	for _, r := range l.replicas {
		if r.err == nil && r.reading != nil && (oldest.IsZero() || r.lastReadAt.Before(oldest)) {
			oldest = r.lastReadAt
		}
	}
	return oldest
}

// latestStart returns when the youngest of the replicas that answered came up.
func (l *readerLoop) latestStart() time.Time {
	var last time.Time
	for _, r := range l.replicas {
		if r.reading != nil && r.upSince.After(last) {
			last = r.upSince
		}
	}
	return last
}

// readings returns the relevant replicas' readings, in order of address.
func (l *readerLoop) readings() iter.Seq[*reading] {
	return func(yield func(*reading) bool) {
		for _, address := range slices.Sorted(maps.Keys(l.replicas)) {
			if r := l.replicas[address]; r.reading != nil && r.isUsed() && !yield(r.reading) {
				return
			}
		}
	}
}

func (l *readerLoop) clients() iter.Seq[*connectedClient] {
	return func(yield func(*connectedClient) bool) {
		for r := range l.readings() {
			for _, c := range r.clients {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// unread returns why a client cannot be read, nil if all can.
func (l *readerLoop) unread() error {
	for c := range l.clients() {
		if c.unread != nil {
			return c.unread
		}
	}
	return nil
}

func (l *readerLoop) skipped() []metadata.PublicationError {
	var all []metadata.PublicationError
	for r := range l.readings() {
		all = append(all, r.skipped...)
		for _, c := range r.clients {
			all = append(all, c.skipped...)
		}
	}
	return all
}

// Reader reads the mapping. Its methods may be called from any goroutine.
type Reader struct {
	o Options
}

// New checks the options and returns a reader that does nothing before Run.
func New(o Options) (*Reader, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.setDefaults()
	return &Reader{o: o}, nil
}
