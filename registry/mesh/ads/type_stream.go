package ads

import (
	"maps"
	"math"
	"slices"
	"time"
)

// maxNames bounds the names in one delta request, in bytes: istiod takes
// requests of up to 4 MiB, and held names are sent twice. framing is more than
// the bytes round a name and its version.
const (
	maxNames = 1 << 20
	framing  = 16
)

// typeStream is the conversation about one type on one stream: nothing of it
// outlives the stream. Only Run's goroutine touches it.
type typeStream struct {
	state *typeState
	asked bool
	nonce string // of the last response

	subscribed map[string]struct{} // names the server knows we want
	list       []string            // state of the world: the names of the last request
	named      bool                // state of the world: it ever held a name, see relist
	dirty      map[string]struct{} // names whose being told has to be looked at
	answers    []answer            // responses to be acknowledged, in order

	responses int
	late      bool              // the wildcard was told after other names
	base      int               // responses when it was
	presented map[string]string // versions the server was told we hold
	version   string            // state of the world: version the server was told we hold

	waiting  map[string]struct{} // asked for, no answer yet
	timeouts []timeout           // when to stop waiting, in order
}

type answer struct {
	nonce, version string
	err            error
}

type timeout struct {
	at    time.Time
	names []string
}

func newTypeStream(b *typeState) *typeStream {
	x := &typeStream{
		state: b, subscribed: map[string]struct{}{}, dirty: map[string]struct{}{},
		waiting: map[string]struct{}{},
	}
	for name := range b.interest.want {
		x.dirty[name] = struct{}{}
	}
	return x
}

// nextDelta returns the next message about this type on a delta stream.
// Acknowledging and subscribing are never one message: istiod ignores a
// subscription beside a rejection.
func (x *typeStream) nextDelta() (request, bool) {
	l := x.state.interest
	if len(l.want) == 0 {
		x.answers = nil // a rejection of a type it does not serve us would crash istiod
	}
	if len(x.answers) > 0 {
		a := x.answers[0]
		x.answers = x.answers[1:]
		return request{url: l.url, nonce: a.nonce, err: a.err}, true
	}
	if len(x.dirty) == 0 {
		return request{}, false
	}
	r := request{url: l.url}
	r.subscribe, r.unsubscribe = x.pendingNames(maxNames)
	if len(r.subscribe)+len(r.unsubscribe) == 0 {
		return request{}, false
	}
	if !x.asked {
		r.versions = x.state.cached.versions(maxNames)
		x.presented = r.versions
	}
	x.asked = true
	return r, true
}

// pendingNames takes dirty names, up to limit bytes of them, and returns those that
// the server must be told, sorted.
func (x *typeStream) pendingNames(limit int) (subscribe, unsubscribe []string) {
	for _, name := range slices.Sorted(maps.Keys(x.dirty)) {
		if limit -= len(name) + framing; limit < 0 && len(subscribe)+len(unsubscribe) > 0 {
			break
		}
		delete(x.dirty, name)
		_, subscribed := x.subscribed[name]
		desired := x.state.interest.want[name] > 0
		switch {
		case desired && !subscribed:
			x.subscribed[name] = struct{}{}
			subscribe = append(subscribe, name)
			if name == Wildcard {
				x.late, x.base = x.asked, x.responses
			}
		case !desired && subscribed:
			delete(x.subscribed, name)
			delete(x.waiting, name)
			unsubscribe = append(unsubscribe, name)
		}
	}
	return subscribe, unsubscribe
}

// nextWorld returns the next message about this type on a state-of-the-world
// stream, where each message carries all names. A rejection carries the names of
// the message before: istiod ignores those beside it, so that a change has to
// follow in a message of its own.
func (x *typeStream) nextWorld() (request, bool) {
	l := x.state.interest
	if len(l.want) == 0 {
		x.answers = nil
		return x.giveUp()
	}
	if len(x.answers) > 0 {
		a := x.answers[0]
		x.answers = x.answers[1:]
		r := request{url: l.url, nonce: a.nonce, version: a.version, err: a.err}
		if a.err == nil {
			r.subscribe, _ = x.relist()
		}
		r.names = x.list
		return r, true
	}
	if len(x.dirty) == 0 {
		return request{}, false
	}
	added, changed := x.relist()
	if !changed {
		return request{}, false
	}
	if !x.asked {
		x.version = l.version
	}
	x.asked = true
	return request{url: l.url, nonce: x.nonce, version: l.version, names: x.list, subscribe: added}, true
}

// giveUp returns the message with which a type is unsubscribed from in the state
// of the world. From everything nobody can unsubscribe who never gave a name:
// its responses are ignored instead.
func (x *typeStream) giveUp() (request, bool) {
	clear(x.dirty)
	if len(x.subscribed) == 0 {
		return request{}, false
	}
	clear(x.subscribed)
	clear(x.waiting)
	x.list = nil
	if !x.named {
		x.named = true // to ask again it has to look like a change
		return request{}, false
	}
	return request{url: x.state.interest.url, nonce: x.nonce, version: x.state.interest.version}, true
}

// relist makes the list what is wanted now; it returns what is new in it and
// whether it changed at all. Everything is an empty list until a name was given:
// the older way, which every server knows (go-control-plane's SnapshotCache
// answers an explicit wildcard with nothing, over and over).
func (x *typeStream) relist() (added []string, changed bool) {
	added, gone := x.pendingNames(math.MaxInt)
	if len(added)+len(gone) == 0 {
		return nil, false
	}
	x.list = x.state.interest.names()
	if !x.named && slices.Equal(x.list, []string{Wildcard}) {
		x.list = nil
	} else {
		x.named = true
	}
	return added, true
}

// wait starts the clock for names that were asked for.
func (x *typeStream) wait(names []string, until time.Time) {
	if len(names) == 0 {
		return
	}
	for _, name := range names {
		x.waiting[name] = struct{}{}
	}
	x.timeouts = append(x.timeouts, timeout{at: until, names: names})
}

// timedOut returns the names whose time is up, sorted.
func (x *typeStream) timedOut(now time.Time) []string {
	var names []string
	for len(x.timeouts) > 0 && !x.timeouts[0].at.After(now) {
		for _, name := range x.timeouts[0].names {
			if _, ok := x.waiting[name]; ok {
				delete(x.waiting, name)
				names = append(names, name)
			}
		}
		x.timeouts = x.timeouts[1:]
	}
	slices.Sort(names)
	return names
}

// response says where the conversation is in the stream numbered epoch.
func (x *typeStream) response(epoch int, m Mode) rawResponse {
	_, wildcard := x.subscribed[Wildcard]
	return rawResponse{
		epoch: epoch, delta: m == Delta, wildcard: wildcard,
		first: x.responses == 1, silent: x.responses == 0,
		late: x.late, answered: x.responses > x.base,
		presented: x.presented, version: x.version, waiting: x.waiting,
	}
}

// interest is what is wanted of one type, whatever its resources are in Go. Only
// Run's goroutine touches it.
type interest struct {
	url     string
	want    map[string]int      // how many subscriptions want a name
	changed map[string]struct{} // names that sessions have to look at again
	// leaving are names that nobody wants any more and that the server may still
	// serve: what is known of them stays and is kept current until it was told.
	leaving map[string]struct{}
	release func(name string) // forgets what is known of a name
	version string            // last accepted
	held    int               // resources held
	unknown int               // names asked for and not answered
}

func newInterest(url string) *interest {
	return &interest{url: url, want: map[string]int{}, changed: map[string]struct{}{}, leaving: map[string]struct{}{}}
}

// wants says whether what is reported of a name counts.
func (l *interest) wants(name string) bool {
	return l.want[name] > 0 || l.want[Wildcard] > 0 || has(l.leaving, name) || has(l.leaving, Wildcard)
}

// idle says whether nothing that is told counts.
func (l *interest) idle() bool { return len(l.want) == 0 && len(l.leaving) == 0 }

func has(set map[string]struct{}, name string) bool {
	_, ok := set[name]
	return ok
}

// releaseUnused forgets what nobody wants once no session asks for it any more. Had it
// been forgotten before, a name given up and wanted again at once, of which the
// server then hears nothing, would never be told.
func (l *interest) releaseUnused(asked []map[string]struct{}) {
	isAsked := func(name string) bool {
		return slices.ContainsFunc(asked, func(names map[string]struct{}) bool { return has(names, name) })
	}
	for name := range l.leaving {
		switch {
		case l.want[name] > 0:
			delete(l.leaving, name)
		case isAsked(name), l.want[Wildcard] == 0 && isAsked(Wildcard):
		default:
			delete(l.leaving, name)
			l.release(name)
		}
	}
}

// add wants a name once more.
func (l *interest) add(name string) {
	l.want[name]++
	if l.want[name] == 1 {
		l.changed[name] = struct{}{}
	}
}

// drop wants a name once less and says whether nobody wants it any more.
func (l *interest) drop(name string) bool {
	l.want[name]--
	if l.want[name] > 0 {
		return false
	}
	delete(l.want, name)
	l.changed[name] = struct{}{}
	l.leaving[name] = struct{}{}
	return true
}

// names returns what is wanted, sorted.
func (l *interest) names() []string { return slices.Sorted(maps.Keys(l.want)) }
