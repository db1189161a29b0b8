package nacos

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"math"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

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

// A snapshot is what an answer or a push reports of a service.
type snapshot struct {
	stamp     uint64 // the server's clock, in ms
	instances []instance
	sum       [sha256.Size]byte // of the instances
	protected error             // the health of some is unknown
}

// errProtected says that a server does not tell whether instances can be called.
var errProtected = errors.New("Nacos protects this service: no larger share of its instances is healthy than its protection threshold, " + //nolint:staticcheck // a name
	"so that it shows the others as healthy too; their entries stay, and none is added; repair or deregister them, or lower the threshold")

// An instance is an enabled instance in canonical form.
type instance struct {
	key, text string
	err       error // why it is invalid; text is empty then
}

// newSnapshot returns the enabled instances in canonical form: answers leave out
// the others, pushes do not. Connections that overlap publish an address twice;
// of these instances the one that may be called comes first.
func newSnapshot(info *model.Service) snapshot {
	t := snapshot{stamp: info.LastRefTime}
	if info.ReachProtectionThreshold {
		t.protected = errProtected
	}
	for _, h := range info.Hosts {
		if h.Enable {
			t.instances = append(t.instances, toInstance(h))
		}
	}
	slices.SortFunc(t.instances, func(a, b instance) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.text, b.text)) })
	sum := sha256.New()
	for _, in := range t.instances {
		sum.Write([]byte(in.key + "\n" + in.text + "\n"))
	}
	sum.Sum(t.sum[:0])
	return t
}

func toInstance(h model.Instance) instance {
	key := net.JoinHostPort(h.Ip, strconv.FormatUint(h.Port, 10))
	if h.Port > math.MaxUint16 {
		return instance{key: clip(key), err: errors.New("no such port")}
	}
	in := fromModel(h)
	in.Enabled = in.Weight > 0
	return instance{key: in.Key(), text: in.String()}
}

// An inbox holds the pushes of one connection until the reader handles them. Of
// each service it holds the newest.
type inbox struct {
	ready chan struct{}

	mu     sync.Mutex
	latest map[serviceKey]notice
}

// A notice is what pushes reported of a service.
type notice struct {
	snapshot snapshot
	mixed    bool // by their order it is unclear which is the newest
}

// maxNotices bounds an inbox. Pushes beyond it are lost; the services are
// verified later anyway.
const maxNotices = 1 << 17

func newInbox() *inbox {
	return &inbox{ready: make(chan struct{}, 1), latest: make(map[serviceKey]notice)}
}

// put adds a push. Only the goroutine that receives calls it.
func (i *inbox) put(k serviceKey, t snapshot) {
	i.mu.Lock()
	old, ok := i.latest[k]
	n := notice{snapshot: t}
	switch {
	case ok && t.stamp <= old.snapshot.stamp && t.sum != old.snapshot.sum:
		n = notice{snapshot: old.snapshot, mixed: true}
	case ok:
		n.mixed = old.mixed
	}
	if ok || len(i.latest) < maxNotices {
		i.latest[k] = n
	}
	i.mu.Unlock()
	select {
	case i.ready <- struct{}{}:
	default:
	}
}

// drain removes and returns the notices.
func (i *inbox) drain() map[serviceKey]notice {
	i.mu.Lock()
	defer i.mu.Unlock()
	latest := i.latest
	i.latest = make(map[serviceKey]notice)
	return latest
}
