package debug

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
)

// Run reads until ctx ends and then returns nil, after everything it started
// has ended. It calls changed from one goroutine: after the first reading, or
// the first failure of one, and whenever there is news. A failed reading
// leaves the mapping as it was; the next one follows after the interval.
func (r *Reader) Run(ctx context.Context, changed func(Snapshot)) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &state{
		o:       &r.o,
		results: make(chan result),
		ledger:  newLedger(r.o.Grace, r.o.ConnectionGrace),
		watches: make(map[string]*watch),
	}
	listings := make(chan listing)
	s.group.Go(func() { list(ctx, s.o, listings) })
	defer s.group.Wait()
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-listings:
			s.listed(ctx, l)
		case res := <-s.results:
			s.answered(res)
		}
		if s.dirty {
			s.dirty = false
			s.publish(changed)
		}
	}
}

// state is what Run holds; only its goroutine touches it.
type state struct {
	o         *Options
	group     sync.WaitGroup
	results   chan result
	ledger    *claimSet
	watches   map[string]*watch
	listErr   error
	published *Snapshot
	dirty     bool // something came up since told
}

// watch is one replica that is being read.
type watch struct {
	cancel context.CancelFunc
	part   *part     // nil until it answered
	born   time.Time // the replica came up then or earlier, as far as its clients tell
	at     time.Time // when the last good reading began
	err    error

	// unlisted is set while it is listed no more. One that is not ready leaves
	// the list and keeps its clients, so that it is asked on while it answers.
	unlisted bool
}

// counts reports whether what a replica tells matters, or that it does not.
func (w *watch) counts() bool { return !w.unlisted || w.err == nil }

// listed starts to read the replicas that are new. Those that are listed no more
// are read until they answer no more; only that makes their part go.
func (s *state) listed(ctx context.Context, l listing) {
	if (l.err == nil) != (s.listErr == nil) {
		s.dirty = true
		if l.err != nil {
			s.o.Log.Warn("replicas of istiod cannot be listed, the last known ones are read", "err", l.err)
		} else {
			s.o.Log.Info("replicas of istiod are listed again", "replicas", len(l.replicas))
		}
	}
	s.listErr = l.err
	if l.err != nil {
		return
	}
	for _, replica := range l.replicas {
		if s.watches[replica] == nil {
			s.start(ctx, replica)
		}
	}
	for replica, w := range s.watches {
		before := w.unlisted
		w.unlisted = !slices.Contains(l.replicas, replica)
		s.dirty = s.dirty || w.unlisted != before
		if !s.end(replica, w) && w.unlisted && !before {
			s.o.Log.Info("replica of istiod is listed no more, and read on while it answers", "replica", replica)
		}
	}
}

// end forgets a replica that is listed no more, once it is not reached, or has
// not answered for as long as its clients may take to come back, or reports no
// client that another does not report: it may be another address of that one.
func (s *state) end(replica string, w *watch) (ended bool) {
	answers := w.err == nil && w.part != nil
	away := !answers && (w.part == nil || causeIs(w.err, Unreachable) || time.Since(w.at) > s.o.ConnectionGrace)
	if !w.unlisted || !away && (!answers || s.alone(w)) {
		return false
	}
	w.cancel()
	delete(s.watches, replica)
	s.dirty = true
	s.o.Log.Info("replica of istiod is gone", "replica", replica)
	return true
}

// alone reports whether a replica reports a client that no listed one reports
// and that may publish something.
func (s *state) alone(w *watch) bool {
	for id, c := range w.part.clients {
		if c.publication == nil {
			continue
		}
		elsewhere := false
		for _, o := range s.watches {
			if !o.unlisted && o.part != nil && o.err == nil {
				same := o.part.clients[id]
				elsewhere = elsewhere || same != nil && same.connectedAt.Equal(c.connectedAt)
			}
		}
		if !elsewhere {
			return true
		}
	}
	return false
}

func (s *state) start(ctx context.Context, replica string) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{cancel: cancel}
	s.watches[replica] = w
	s.dirty = true
	p := &poller{o: s.o, replica: replica}
	if s.o.XDS != nil {
		p.transport = newXDS(s.o.XDS, replica, s.o.MaxBytes)
	} else {
		p.transport = newHTTP(s.o.HTTP, replica, s.o.Timeout)
	}
	s.group.Go(func() { poll(ctx, p, w, s.o, s.results) })
}

// answered takes a reading over. A result of a replica that was forgotten comes
// too late.
func (s *state) answered(res result) {
	w := s.watches[res.replica]
	if w != res.watch {
		return
	}
	if errorKey(res.err) != errorKey(w.err) {
		s.dirty = true
		switch {
		case w.unlisted: // it goes, or comes back to the list
		case res.err != nil:
			s.o.Log.Warn("mapping cannot be read, the last known one stays", "replica", res.replica, "err", res.err)
		default:
			s.o.Log.Info("mapping is read again", "replica", res.replica)
		}
	}
	if w.err = res.err; res.err != nil {
		s.end(res.replica, w)
		return
	}
	w.at = res.at
	if res.part == w.part {
		s.dirty = s.dirty || s.due(time.Now())
		return
	}
	s.dirty = true
	switch born := res.part.at.Add(-res.part.age); {
	case restarted(w.part, res.part):
		w.born = res.part.at
	case w.part == nil || born.Before(w.born):
		w.born = born
	}
	w.part = res.part
}

// restarted reports whether no connection of the earlier part lives on, which
// no ordinary coming and going looks like.
func restarted(before, now *part) bool {
	if before == nil || len(before.clients) == 0 {
		return false
	}
	for id, c := range before.clients {
		if still := now.clients[id]; still != nil && still.connectedAt.Equal(c.connectedAt) {
			return false
		}
	}
	return true
}

// publish brings the ledger up to date and hands out what is news.
func (s *state) publish(changed func(Snapshot)) {
	now := time.Now()
	next := Snapshot{Complete: len(s.watches) > 0, At: now}
	errs := []error{s.listErr}
	for _, replica := range slices.Sorted(maps.Keys(s.watches)) {
		w := s.watches[replica]
		if !w.counts() {
			continue
		}
		status := w.status(replica, s.o.OwnNodes)
		next.Replicas = append(next.Replicas, status)
		next.Complete = next.Complete && status.Answered
		errs = append(errs, w.err)
	}
	next.Err = errors.Join(errs...)
	for c := range s.clients() {
		if c.unread != nil {
			next.Unread = c.unread
			break
		}
	}
	s.ledger.hold = s.youngest().Add(s.o.ConnectionGrace)
	s.ledger.update(s.clients(), reliability{complete: next.Complete, fresh: next.Err == nil, asOf: s.asOf()}, now)
	if now.Before(s.ledger.hold) {
		next.Restarting = s.ledger.hold
	}
	s.returning(!next.Restarting.IsZero())
	next.Mapping, next.Waiting = s.ledger.mapping(), s.ledger.gone
	next.Skipped, next.SkippedTotal = skippedOf(s.watches)
	if s.published == nil && next.Err == nil && !s.anyAnswer() {
		return // nothing is known yet, and nothing went wrong
	}
	if s.published == nil || next.news(*s.published) {
		s.published = &next
		changed(next)
	}
}

// returning logs when clients begin to be waited for, and when that ends.
func (s *state) returning(now bool) {
	before := s.published != nil && !s.published.Restarting.IsZero()
	switch {
	case now && !before:
		s.o.Log.Info("a replica of istiod came up lately, keys wait for their clients to come back", "until", s.ledger.hold)
	case before && !now:
		s.o.Log.Info("the clients of istiod had the time to come back")
	}
}

// due reports whether time has come to change something.
func (s *state) due(now time.Time) bool {
	next := s.ledger.next
	return !next.IsZero() && !s.asOf().Before(next) || s.published != nil && !s.published.Restarting.IsZero() && !now.Before(s.ledger.hold)
}

// asOf returns the time of the oldest among the last readings of the replicas
// that answer.
func (s *state) asOf() time.Time {
	var oldest time.Time
	for _, w := range s.watches {
		if w.err == nil && w.part != nil && (oldest.IsZero() || w.at.Before(oldest)) {
			oldest = w.at
		}
	}
	return oldest
}

// youngest returns when the last of the replicas that answered came up.
func (s *state) youngest() time.Time {
	var born time.Time
	for _, w := range s.watches {
		if w.part != nil && w.born.After(born) {
			born = w.born
		}
	}
	return born
}

func (s *state) anyAnswer() bool {
	for _, w := range s.watches {
		if w.part != nil {
			return true
		}
	}
	return false
}

func (s *state) clients() iter.Seq[*client] {
	return func(yield func(*client) bool) {
		for _, w := range s.watches {
			if w.part == nil || !w.counts() {
				continue
			}
			for _, c := range w.part.clients {
				if !yield(c) {
					return
				}
			}
		}
	}
}

func (w *watch) status(replica string, own []string) ReplicaStatus {
	status := ReplicaStatus{Replica: replica, Answered: w.part != nil, Unlisted: w.unlisted, At: w.at, Err: w.err}
	if w.part == nil {
		return status
	}
	status.Clients = len(w.part.clients)
	for _, c := range w.part.clients {
		if c.publication != nil {
			status.Publishers++
		}
		status.Own = status.Own || slices.Contains(own, c.node)
	}
	return status
}

func compareSkipped(a, b metadata.PublicationError) int {
	return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Text, b.Text), cmp.Compare(a.Reason, b.Reason))
}
