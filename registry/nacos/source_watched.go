package nacos

import (
	"crypto/sha256"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

// maxLags is how often a service is read over a new connection while that reports
// something older than the earlier one. A server that lags behind its cluster
// catches up, but one whose clock is behind never does.
const maxLags = 5

// lookAgain is when a service is read once more if an answer or a push is in
// doubt. The reads of a server lag behind less.
const lookAgain = time.Second

// A watchedService is one service of a server. Only the loop of the reader touches
// it.
type watchedService struct {
	key       serviceKey
	groups    []formatGroup // of each format whose service it is
	scope     *scope
	listed    bool // in the last list
	reported  registry.Reported
	count     int // instances
	sum       [sha256.Size]byte
	instances []instance // as received, if they depend on documents
	protected error      // why the health of some instances is unknown

	lost    dependency.Lost
	refused map[string]error // why services are unknown that were reported before

	former uint64 // stamp of the newest snapshot of an earlier connection

	asked time.Time
	err   error // of the last reading

	session
}

// A session is the state of a service over one connection.
type session struct {
	lags    int    // answers that were older than watchedService.former
	known   bool   // it was answered
	stamp   uint64 // of the newest snapshot
	behind  bool   // the last answer was older than the newest snapshot
	doubted bool   // it was reported without instances
	pending bool   // the first reading waits for it

	queued, asking bool
	again          bool      // to be read once more after that
	leaving        bool      // it is gone, and the subscription has to end
	due            time.Time // when it is to be read next
	fails          int
}

// A formatGroup is a service's group in one format.
type formatGroup struct {
	format Format
	group  registry.Group
}

// A verdict is what follows from an answer or a push.
type verdict struct {
	accept bool // report it to the table
	ask    when // read the service once more
}

type when uint8

const (
	inTurn when = iota // within VerifyInterval
	now
	shortly // after the lag of a server's reads
)

// push judges a push. Stamps are compared within one connection, that is by one
// server's clock. If that was set back, answers decide.
func (w *watchedService) push(n notice) verdict {
	switch t := n.snapshot; {
	case !w.known:
		return verdict{ask: shortly}
	case n.mixed, t.protected != nil:
		return verdict{ask: now}
	case t.sum == w.sum:
		w.stamp = max(w.stamp, t.stamp)
		return verdict{}
	case t.stamp <= w.stamp:
		return verdict{ask: now}
	case len(t.instances) == 0 && w.count > 0:
		w.doubted = true
		return verdict{ask: now}
	default:
		w.stamp, w.doubted = t.stamp, false
		return verdict{accept: true}
	}
}

// answer judges the answer to a request that was sent when before was the newest
// stamp. A service without instances is accepted once two answers agree, and
// something older from another server once more of them do.
func (w *watchedService) answer(t snapshot, before uint64) verdict {
	if w.overtaken(t) {
		w.lags++
		return verdict{ask: shortly}
	}
	if w.known && t.stamp < w.stamp && (w.stamp != before || !w.behind) {
		w.behind = true // a push overtook it, or the clock was set back
		return verdict{ask: shortly}
	}
	w.known, w.behind, w.stamp = true, false, t.stamp
	doubted := w.doubted
	w.doubted = len(t.instances) == 0 && w.count > 0
	switch {
	case w.doubted && !doubted:
		return verdict{ask: shortly}
	case doubted && len(t.instances) > 0:
		return verdict{accept: true, ask: shortly} // a push and an answer disagree
	}
	w.doubted = false
	return verdict{accept: true}
}

// overtaken reports whether a server reports something older and different than
// another did before, and less than maxLags times.
func (w *watchedService) overtaken(t snapshot) bool {
	return !w.known && t.stamp < w.former && t.sum != w.sum && w.lags < maxLags
}

func (w *watchedService) renew() {
	if w.known {
		w.former = w.stamp
	}
	w.listed, w.session = false, session{}
}
