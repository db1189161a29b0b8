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

// Reader reads the mapping. Its methods may be called from any goroutine.
type Reader struct {
	o Options
}

// New returns a reader that does nothing until Run. The error names the invalid option.
func New(o Options) (*Reader, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.setDefaults()
	return &Reader{o: o}, nil
}

// Run reads until ctx ends, and returns nil once its goroutines have ended. It calls changed
// from one goroutine: after the first read or its failure, and then whenever the snapshot
// changes. A failed read does not change the mapping.
func (r *Reader) Run(ctx context.Context, changed func(Snapshot)) error {
	ctx, cancel := context.WithCancel(ctx)
	l := &readerLoop{
		o:        &r.o,
		results:  make(chan pollResult),
		claims:   newClaimSet(r.o.Grace, r.o.ConnectionGrace),
		replicas: make(map[string]*polledReplica),
	}
	listings := make(chan Listing)
	l.group.Go(func() { List(ctx, l.o.Replicas, l.o.Interval, l.o.Timeout, listings) })
	defer l.group.Wait()
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case listing := <-listings:
			l.setListing(ctx, listing)
		case res := <-l.results:
			l.setResult(res)
		}
		if l.dirty {
			l.dirty = false
			l.publish(changed)
		}
	}
}

// readerLoop is the state of Run's goroutine.
type readerLoop struct {
	// Immutable or safe for concurrent use.
	o       *Options
	group   sync.WaitGroup  // the goroutines of Run
	results chan pollResult // from the pollers

	// Owned by Run's goroutine.
	replicas  map[string]*polledReplica // by address
	listErr   error                     // why the replicas could not be listed last
	claims    *claimSet
	published *Snapshot // the last one; nil: none
	dirty     bool      // something changed since the last call of publish
}

// publish updates the claims, and reports a snapshot if it differs from the last one.
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
	l.claims.update(l.clients(),
		readingCertainty{complete: next.Complete, fresh: next.Err == nil, asOf: l.asOf()}, now)
	if now.Before(l.claims.notBefore) {
		next.Restarting = l.claims.notBefore
	}
	l.logRestart(!next.Restarting.IsZero())
	next.Mapping, next.Waiting = l.claims.mapping(), l.claims.absentCount
	next.SetSkipped(l.skipped())
	if l.published == nil && next.Err == nil && !answered {
		return // no replica has answered or failed yet
	}
	if l.published == nil || next.differs(l.published) {
		l.published = &next
		changed(next)
	}
}

// logRestart logs the begin and the end of the period in which clients reconnect.
func (l *readerLoop) logRestart(restarting bool) {
	before := l.published != nil && !l.published.Restarting.IsZero()
	switch {
	case restarting && !before:
		l.o.Log.Info("istiod replica restarted, keeping keys until its clients have had time to reconnect",
			"until", l.claims.notBefore)
	case before && !restarting:
		l.o.Log.Info("reconnect period for istiod's clients is over")
	}
}

// isDue reports whether a claim, or the period in which clients reconnect, can end now.
func (l *readerLoop) isDue(now time.Time) bool {
	if end := l.claims.nextEnd; !end.IsZero() && !l.asOf().Before(end) {
		return true
	}
	return l.published != nil && !l.published.Restarting.IsZero() && !now.Before(l.claims.notBefore)
}

// asOf returns when the oldest among the last readings of the answering replicas began.
func (l *readerLoop) asOf() time.Time {
	var oldest time.Time
	for _, r := range l.replicas {
		if r.err == nil && r.reading != nil && (oldest.IsZero() || r.lastReadAt.Before(oldest)) {
			oldest = r.lastReadAt
		}
	}
	return oldest
}

// latestStart returns when the newest of the replicas that have answered started.
func (l *readerLoop) latestStart() time.Time {
	var last time.Time
	for _, r := range l.replicas {
		if r.reading != nil && r.upSince.After(last) {
			last = r.upSince
		}
	}
	return last
}

// readings returns the readings that count, in order of the replicas' addresses.
func (l *readerLoop) readings() iter.Seq[*reading] {
	return func(yield func(*reading) bool) {
		for _, address := range slices.Sorted(maps.Keys(l.replicas)) {
			if r := l.replicas[address]; r.reading != nil && r.isUsed() && !yield(r.reading) {
				return
			}
		}
	}
}

// clients returns the clients of all readings that count.
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

// unread returns why some client cannot be read; nil: all can.
func (l *readerLoop) unread() error {
	for c := range l.clients() {
		if c.unread != nil {
			return c.unread
		}
	}
	return nil
}

// skipped returns the publications that cannot be parsed.
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
