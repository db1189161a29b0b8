package debug

import (
	"context"
	"slices"
	"time"
)

// polledReplica is a replica of istiod with its newest reading. It is owned by Run's
// goroutine. Its poller only passes it back.
type polledReplica struct {
	address string
	cancel  context.CancelFunc // of its poller

	reading    *reading // the newest; nil: none yet
	lastReadAt time.Time
	err        error     // why the last read failed
	upSince    time.Time // latest time at which it can have started, judged by its clients

	// unlisted is set while the replica is not listed. A replica that becomes unready leaves
	// the list but keeps its clients. So it is read while it answers.
	unlisted bool
}

// isUsed reports whether the reading counts.
func (r *polledReplica) isUsed() bool { return !r.unlisted || r.err == nil }

// setListing starts to read new replicas, and marks those that are no longer listed.
func (l *readerLoop) setListing(ctx context.Context, listing Listing) {
	if listing.Err != nil {
		listing.Err = &Error{Cause: NoReplicas, Where: "istiod", Err: listing.Err}
	}
	if (listing.Err == nil) != (l.listErr == nil) {
		l.dirty = true
		if listing.Err != nil {
			l.o.Log.Warn("cannot list the replicas of istiod, reading the last known ones", "err", listing.Err)
		} else {
			l.o.Log.Info("replicas of istiod listed again", "replicas", len(listing.Replicas))
		}
	}
	l.listErr = listing.Err
	if listing.Err != nil {
		return
	}
	for _, address := range listing.Replicas {
		if l.replicas[address] == nil {
			l.start(ctx, address)
		}
	}
	for address, r := range l.replicas {
		before := r.unlisted
		r.unlisted = !slices.Contains(listing.Replicas, address)
		l.dirty = l.dirty || r.unlisted != before
		if !l.removeUnlisted(r) && r.unlisted && !before {
			l.o.Log.Info("replica of istiod no longer listed, reading it while it answers", "replica", address)
		}
	}
}

// removeUnlisted removes an unlisted replica in three cases: it is unreachable, it has not
// answered for the time in which its clients reconnect, or listed replicas report all its
// clients. In the last case one of them may be the same process at another address.
func (l *readerLoop) removeUnlisted(r *polledReplica) (removed bool) {
	answers := r.err == nil && r.reading != nil
	stopped := !answers &&
		(r.reading == nil || hasCause(r.err, Unreachable) || time.Since(r.lastReadAt) > l.o.ConnectionGrace)
	if !r.unlisted || !stopped && (!answers || l.hasOwnClient(r)) {
		return false
	}
	r.cancel()
	delete(l.replicas, r.address)
	l.dirty = true
	l.o.Log.Info("replica of istiod removed", "replica", r.address)
	return true
}

// hasOwnClient reports whether a replica has a client that may publish keys and that no listed
// replica reports.
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

// start starts the poller of a replica.
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

// setResult records a reading or its failure, unless its replica was removed.
func (l *readerLoop) setResult(res pollResult) {
	r := res.replica
	if l.replicas[r.address] != r {
		return
	}
	if ErrorKey(res.err) != ErrorKey(r.err) {
		l.dirty = true
		switch {
		case r.unlisted: // a later event removes it, or lists it again
		case res.err != nil:
			l.o.Log.Warn("cannot read the mapping, keeping the last known one", "replica", r.address, "err", res.err)
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

// status returns the status for a Snapshot. own are the nodes of Options.OwnNodes.
func (r *polledReplica) status(own []string) ReplicaStatus {
	status := ReplicaStatus{
		Replica: r.address, Answered: r.reading != nil, Unlisted: r.unlisted, At: r.lastReadAt, Err: r.err,
	}
	if r.reading == nil {
		return status
	}
	status.Clients = len(r.reading.clients)
	for _, c := range r.reading.clients {
		status.Own = status.Own || slices.Contains(own, c.node)
	}
	return status
}
