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

// maxLags is how often a service is asked for over a new connection while what
// it sends is older than what an earlier one sent: a server that others of its
// cluster are ahead of catches up, and one whose clock is behind never does.
const maxLags = 5

// lookAgain is when a service is asked for once more where what was sent is
// in doubt. It is longer than the reads of a server lag behind.
const lookAgain = time.Second

// A watchedService is one service of a server and what is known of it. Only the loop
// of the reading touches it.
type watchedService struct {
	key       serviceKey
	groups    []formatGroup // of each format whose service it is
	scope     *scope
	listed    bool // in the last list
	services  []*registry.Service
	skipped   []string // instances that could not be read
	count     int      // instances
	sum       [sha256.Size]byte
	instances []instance // what was received, if it depends on documents

	lost    dependency.Lost
	refused map[string]error // why services are unknown that instances reported before

	former uint64 // stamp of the newest that an earlier connection received

	asked time.Time
	err   error // of the last reading

	session
}

// A session is what holds of a service for one connection.
type session struct {
	lags    int    // answers that were older than that
	known   bool   // it was answered
	stamp   uint64 // of the newest that was received
	behind  bool   // the last answer was older than what had been received before
	doubted bool   // it was said to have lost all its instances
	pending bool   // the first reading waits for it

	queued, asking bool
	again          bool      // to be asked once more after that
	hinted         bool      // it was asked for a cause
	leaving        bool      // it is no more, and the subscription has to end
	due            time.Time // when it is to be asked next
	fails          int
}

// A formatGroup is a service's group in one format.
type formatGroup struct {
	format Format
	group  registry.Group
}

// A verdict is what has to follow from what a server sent.
type verdict struct {
	accept bool // report it to the table
	ask    when
}

type when uint8

const (
	inTurn  when = iota // within the interval of verifying
	now                 // to find out what is newest
	shortly             // after the lag of a server's reads
)

// push judges what a push brought. Stamps are compared within one connection,
// that is by one server's clock; where that was set back, answers decide.
func (w *watchedService) push(n notice) verdict {
	switch t := n.snapshot; {
	case !w.known:
		return verdict{ask: shortly}
	case n.mixed:
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

// answer judges an answer to a question that was asked when before was the
// newest stamp. It takes two looks to believe that a service has lost
// everything, and more to believe another server that reports something older.
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

// overtaken reports whether a server reports something older and different
// than another did before, unless it has done so for long.
func (w *watchedService) overtaken(t snapshot) bool {
	return !w.known && t.stamp < w.former && t.sum != w.sum && w.lags < maxLags
}

// renew forgets what held for an earlier connection.
func (w *watchedService) renew() {
	if w.known {
		w.former = w.stamp
	}
	w.listed, w.session = false, session{}
}

// snapshot is what a server reported of one service, in an answer or a push.
type snapshot struct {
	stamp     uint64 // the server's clock when it said so, in ms
	instances []instance
	sum       [sha256.Size]byte // of the instances; equal where nothing changed
}

// An instance is one that is enabled, in canonical form.
type instance struct {
	key, text string
	err       error // why it is none; text is empty then
}

// newSnapshot brings what a server sent into the canonical form. Answers hold enabled
// instances alone and pushes all of them, so the others are left out of both.
// Of several instances of one address, as connections that overlap publish
// them, one that may be called counts.
func newSnapshot(info *model.Service) snapshot {
	t := snapshot{stamp: info.LastRefTime}
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

// An inbox gathers the pushes of one connection until its reader comes to
// them. Those of one service become one: the newest.
type inbox struct {
	ready chan struct{}

	mu     sync.Mutex
	latest map[serviceKey]notice
	count  int
}

// A notice is what pushes reported of a service.
type notice struct {
	snapshot snapshot
	mixed    bool // they came in an order that leaves the newest open
}

// maxNotices bounds an inbox. What goes over it counts as lost, which
// verifying makes up for.
const maxNotices = 1 << 17

func newInbox() *inbox {
	return &inbox{ready: make(chan struct{}, 1), latest: make(map[serviceKey]notice)}
}

// put takes a push in. Only the goroutine that receives calls it.
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
	i.count++
	i.mu.Unlock()
	select {
	case i.ready <- struct{}{}:
	default:
	}
}

// take returns what came in, and how many pushes that were, and forgets it.
func (i *inbox) take() (map[serviceKey]notice, int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	latest, count := i.latest, i.count
	i.latest, i.count = make(map[serviceKey]notice), 0
	return latest, count
}
