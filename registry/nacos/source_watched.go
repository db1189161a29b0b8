package nacos

import (
	"crypto/sha256"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

// maxLags is the number of reads of a service over a new connection while its answers are older
// than those of the earlier connection. A server that lags behind its cluster catches up. A
// server whose clock is behind never does.
const maxLags = 5

// lookAgain is the time after which a service is read again if an answer or a push is doubtful.
// The reads of a server lag behind its writes by less.
const lookAgain = time.Second

// A watchedService is one service of a server, owned by the loop of the reader.
type watchedService struct {
	key       serviceKey
	groups    []formatGroup // in each format that accepts the service
	scope     *scope
	listed    bool // in the last list
	reported  registry.Reported
	count     int // number of instances
	sum       [sha256.Size]byte
	instances []instance // as received, if they depend on documents
	protected error      // why the health of some instances is unknown

	lost    dependency.Lost
	refused map[string]error // why services of lost are unknown

	former uint64 // stamp of the newest snapshot of an earlier connection

	asked time.Time // time of the last request
	err   error     // of the last read

	session
}

// A session is the state of a service over one connection.
type session struct {
	lags    int    // number of answers that were older than watchedService.former
	known   bool   // an answer was accepted
	stamp   uint64 // of the newest snapshot
	behind  bool   // the last answer was older than the newest snapshot
	doubted bool   // it was reported without instances
	pending bool   // the first read waits for it

	queued, asking bool
	again          bool      // read it again after the current request
	leaving        bool      // it was removed, and the subscription has to end
	due            time.Time // of the next read
	fails          int
}

// A formatGroup is a service's group in one format.
type formatGroup struct {
	format Format
	group  registry.Group
}

// A verdict is the consequence of an answer or a push.
type verdict struct {
	accept bool // it replaces the content of the service
	read   when // the service is read again
}

type when uint8

const (
	inTurn when = iota // within VerifyInterval
	now
	shortly // after the lag of a server's reads
)

// push judges a push. Stamps are compared within one connection, and so by the clock of one
// server. If that clock was set back, answers decide.
func (w *watchedService) push(n notice) verdict {
	switch t := n.snapshot; {
	case !w.known:
		return verdict{read: shortly}
	case n.mixed, t.protected != nil:
		return verdict{read: now}
	case t.sum == w.sum:
		w.stamp = max(w.stamp, t.stamp)
		return verdict{}
	case t.stamp <= w.stamp:
		return verdict{read: now}
	case len(t.instances) == 0 && w.count > 0:
		w.doubted = true
		return verdict{read: now}
	default:
		w.stamp, w.doubted = t.stamp, false
		return verdict{accept: true}
	}
}

// answer judges the answer to a request. Before is the newest stamp when the request was sent. A
// service without instances is accepted if two answers agree. An older content from another
// server is accepted after maxLags answers.
func (w *watchedService) answer(t snapshot, before uint64) verdict {
	if w.overtaken(t) {
		w.lags++
		return verdict{read: shortly}
	}
	if w.known && t.stamp < w.stamp && (w.stamp != before || !w.behind) {
		w.behind = true // a push overtook the answer, or the clock was set back
		return verdict{read: shortly}
	}
	w.known, w.behind, w.stamp = true, false, t.stamp
	doubted := w.doubted
	w.doubted = len(t.instances) == 0 && w.count > 0
	switch {
	case w.doubted && !doubted:
		return verdict{read: shortly}
	case doubted && len(t.instances) > 0:
		return verdict{accept: true, read: shortly} // a push and an answer disagree
	}
	w.doubted = false
	return verdict{accept: true}
}

// overtaken reports whether the content is older than that of an earlier connection and differs,
// for less than maxLags answers.
func (w *watchedService) overtaken(t snapshot) bool {
	return !w.known && t.stamp < w.former && t.sum != w.sum && w.lags < maxLags
}

func (w *watchedService) renew() {
	if w.known {
		w.former = w.stamp
	}
	w.listed, w.session = false, session{}
}
