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

// polledReplica is one polledReplica that is being read.
type polledReplica struct {
	address    string
	cancel     context.CancelFunc
	reading    *reading  // nil until it answered
	upSince    time.Time // or earlier, as far as its clients show
	lastReadAt time.Time // when the last successful reading began
	err        error

	// unlisted is set once it is no longer listed. A replica that is not ready leaves
	// the list and keeps its clients, so that it is read while it answers.
	unlisted bool
}

func (r *polledReplica) isUsed() bool { return !r.unlisted || r.err == nil }

// setListing starts to read new replicas. A replica that is no longer listed is
// read until it stops answering; only then its reading is dropped.
func (s *readerLoop) setListing(ctx context.Context, l Listing) {
	if l.Err != nil {
		l.Err = &Error{Cause: NoReplicas, Where: "istiod", Err: l.Err}
	}
	if (l.Err == nil) != (s.listErr == nil) {
		s.dirty = true
		if l.Err != nil {
			s.o.Log.Warn("replicas of istiod not listed, the last known ones are read", "err", l.Err)
		} else {
			s.o.Log.Info("replicas of istiod listed again", "replicas", len(l.Replicas))
		}
	}
	s.listErr = l.Err
	if l.Err != nil {
		return
	}
	for _, address := range l.Replicas {
		if s.replicas[address] == nil {
			s.start(ctx, address)
		}
	}
	for address, r := range s.replicas {
		before := r.unlisted
		r.unlisted = !slices.Contains(l.Replicas, address)
		s.dirty = s.dirty || r.unlisted != before
		if !s.removeUnlisted(r) && r.unlisted && !before {
			s.o.Log.Info("replica of istiod no longer listed, read while it answers", "replica", address)
		}
	}
}

// removeUnlisted removes an unlisted replica in three cases: it is unreachable, it
// has not answered for the time within which its clients come back, or another one
// reports all its clients, and may be the same at another address.
func (l *readerLoop) removeUnlisted(r *polledReplica) (removed bool) {
	answers := r.err == nil && r.reading != nil
	gone := !answers && (r.reading == nil || hasCause(r.err, Unreachable) || time.Since(r.lastReadAt) > l.o.ConnectionGrace)
	if !r.unlisted || !gone && (!answers || l.hasOwnClient(r)) {
		return false
	}
	r.cancel()
	delete(l.replicas, r.address)
	l.dirty = true
	l.o.Log.Info("replica of istiod is gone", "replica", r.address)
	return true
}

// hasOwnClient reports whether a replica reports a client that may publish something
// and that no listed replica reports.
func (l *readerLoop) hasOwnClient(r *polledReplica) bool {
	for id, c := range r.reading.clients {
		if c.publication == nil {
			continue
		}
		elsewhere := false
		for _, o := range l.replicas {
			if !o.unlisted && o.reading != nil && o.err == nil {
				same := o.reading.clients[id]
				elsewhere = elsewhere || same != nil && same.connectedAt.Equal(c.connectedAt)
			}
		}
		if !elsewhere {
			return true
		}
	}
	return false
}

func (l *readerLoop) start(ctx context.Context, address string) {
	ctx, cancel := context.WithCancel(ctx)
	r := &polledReplica{address: address, cancel: cancel}
	l.replicas[address] = r
	l.dirty = true
	p := &poller{o: l.o, replica: address}
	if l.o.XDS != nil {
		p.transport = newXDS(l.o.XDS, address, l.o.MaxBytes)
	} else {
		p.transport = newHTTP(l.o.HTTP, address, l.o.Timeout)
	}
	l.group.Go(func() { p.run(ctx, r, l.results) })
}

// setResult applies a reading, unless its replica was removed.
func (l *readerLoop) setResult(res pollResult) {
	r := res.replica
	if l.replicas[r.address] != r {
		return
	}
	if ErrorKey(res.err) != ErrorKey(r.err) {
		l.dirty = true
		switch {
		case r.unlisted: // it will be removed or listed again
		case res.err != nil:
			l.o.Log.Warn("mapping not read, the last known one is kept", "replica", r.address, "err", res.err)
		default:
			l.o.Log.Info("mapping read again", "replica", r.address)
		}
	}
	if r.err = res.err; res.err != nil {
		l.removeUnlisted(r)
		return
	}
	r.lastReadAt = res.startedAt
	if res.reading == r.reading {
		l.dirty = l.dirty || l.isDue(time.Now())
		return
	}
	l.dirty = true
	switch upSince := res.reading.readAt.Add(-res.reading.minUptime); {
	case hasRestarted(r.reading, res.reading):
		r.upSince = res.reading.readAt
	case r.reading == nil || upSince.Before(r.upSince):
		r.upSince = upSince
	}
	r.reading = res.reading
}

// hasRestarted reports whether no connection of the earlier reading is in the later.
func hasRestarted(before, now *reading) bool {
	if before == nil || len(before.clients) == 0 {
		return false
	}
	for id, c := range before.clients {
		if same := now.clients[id]; same != nil && same.connectedAt.Equal(c.connectedAt) {
			return false
		}
	}
	return true
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

func (r *polledReplica) status(own []string) ReplicaStatus {
	status := ReplicaStatus{Replica: r.address, Answered: r.reading != nil, Unlisted: r.unlisted, At: r.lastReadAt, Err: r.err}
	if r.reading == nil {
		return status
	}
	status.Clients = len(r.reading.clients)
	for _, c := range r.reading.clients {
		status.Own = status.Own || slices.Contains(own, c.node)
	}
	return status
}
