package ads

import (
	"maps"
	"math"
	"slices"
	"time"
)

// interest is the names of one type that are subscribed to. Only Run's goroutine
// touches it.
type interest struct {
	url     string
	cached  cachedType
	names   map[string]struct{}
	changed map[string]struct{} // names that sessions have to look at
	// dropped are names that were removed and that the server may still serve. What is
	// known of them is kept current until no session asks for them.
	dropped map[string]struct{}
	forget  func(name string)
	state   TypeState
}

func newInterest(url string) *interest {
	return &interest{url: url, names: map[string]struct{}{}, changed: map[string]struct{}{}, dropped: map[string]struct{}{}}
}

// has reports whether a name is subscribed to, by itself or by the wildcard.
func (i *interest) has(name string) bool { return has(i.names, name) || has(i.names, Wildcard) }

// covers reports whether a name is subscribed to, or was until lately.
func (i *interest) covers(name string) bool {
	return i.has(name) || has(i.dropped, name) || has(i.dropped, Wildcard)
}

func (i *interest) isEmpty() bool { return len(i.names) == 0 && len(i.dropped) == 0 }

func has(set map[string]struct{}, name string) bool {
	_, ok := set[name]
	return ok
}

// forgetDropped forgets dropped names that no session asks for any more. Sooner
// would be wrong: the server does not notice a name that is dropped and added again
// at once, and would not send it again.
func (i *interest) forgetDropped(isSubscribed func(name string) bool) {
	for name := range i.dropped {
		switch {
		case has(i.names, name):
			delete(i.dropped, name)
		case isSubscribed(name), !has(i.names, Wildcard) && isSubscribed(Wildcard):
		default:
			delete(i.dropped, name)
			i.forget(name)
		}
	}
}

func (i *interest) add(name string) bool {
	if has(i.names, name) {
		return false
	}
	i.names[name] = struct{}{}
	i.changed[name] = struct{}{}
	return true
}

func (i *interest) drop(name string) bool {
	if !has(i.names, name) {
		return false
	}
	delete(i.names, name)
	i.changed[name] = struct{}{}
	i.dropped[name] = struct{}{}
	return true
}

// maxNames bounds the names in one delta request, in bytes: istiod accepts
// requests of up to 4 MiB, and held names are sent twice. framing is more than
// the bytes around a name and its version.
const (
	maxNames = 1 << 20
	framing  = 16
)

// typeStream is the state of one type on one stream. Only Run's goroutine touches
// it.
type typeStream struct {
	session   *session
	interest  *interest
	requested bool
	nonce     string // of the last response

	subscribed map[string]struct{} // names that the server knows we ask for
	list       []string            // state of the world: the names of the last request
	explicit   bool                // state of the world: a request held names, see relist
	dirty      map[string]struct{} // names whose subscription has to be looked at
	acks       []ack               // to be sent, in order

	responses         int               // of this type on this stream
	lateWildcard      bool              // the wildcard was requested after other names: its response cannot be distinguished from theirs
	wildcardResponses int               // responses before that
	presented         map[string]string // versions of held resources that were sent to the server
	version           string            // state of the world: the held version that was sent

	waiting  map[string]struct{} // asked for, not answered yet
	timeouts []timeout           // in order
}

// ack acknowledges a response, or rejects it with err.
type ack struct {
	nonce, version string
	err            error
}

type timeout struct {
	at    time.Time
	names []string
}

func newTypeStream(s *session, i *interest) *typeStream {
	x := &typeStream{
		session: s, interest: i, subscribed: map[string]struct{}{}, dirty: map[string]struct{}{},
		waiting: map[string]struct{}{},
	}
	maps.Copy(x.dirty, i.names)
	return x
}

// isDelta reports whether the stream speaks the incremental variant.
func (x *typeStream) isDelta() bool { return x.session.mode == Delta }

// hasWildcard reports whether the server knows that we ask for everything.
func (x *typeStream) hasWildcard() bool { return has(x.subscribed, Wildcard) }

// isCurrent reports whether silence about a held resource means that it has not
// changed: the server knows which version is held. That requires versions, which istiod
// does not send.
func (x *typeStream) isCurrent(name string) bool {
	if x.isDelta() {
		return x.presented[name] != ""
	}
	return x.version != "" && x.responses == 0
}

func (x *typeStream) next() (request, bool) {
	if x.isDelta() {
		return x.nextDelta()
	}
	return x.nextWorld()
}

// nextDelta returns the next request of a delta stream. It never acknowledges and
// subscribes at once: istiod ignores a subscription beside a rejection.
func (x *typeStream) nextDelta() (request, bool) {
	i := x.interest
	if len(i.names) == 0 {
		x.acks = nil // a rejection of a type without names would crash istiod
	}
	if len(x.acks) > 0 {
		a := x.acks[0]
		x.acks = x.acks[1:]
		return request{url: i.url, nonce: a.nonce, err: a.err}, true
	}
	r := request{url: i.url}
	r.subscribe, r.unsubscribe = x.applyDirty(maxNames)
	if len(r.subscribe)+len(r.unsubscribe) == 0 {
		return request{}, false
	}
	if !x.requested {
		r.versions = x.interest.cached.versions(maxNames)
		x.presented = r.versions
	}
	x.requested = true
	return r, true
}

// applyDirty handles dirty names, up to limit bytes of them, and returns those that
// the server must be sent, sorted.
func (x *typeStream) applyDirty(limit int) (subscribe, unsubscribe []string) {
	for _, name := range slices.Sorted(maps.Keys(x.dirty)) {
		if limit -= len(name) + framing; limit < 0 && len(subscribe)+len(unsubscribe) > 0 {
			break
		}
		delete(x.dirty, name)
		subscribed, desired := has(x.subscribed, name), has(x.interest.names, name)
		switch {
		case desired && !subscribed:
			x.subscribed[name] = struct{}{}
			subscribe = append(subscribe, name)
			if name == Wildcard {
				x.lateWildcard, x.wildcardResponses = x.requested, x.responses
			}
		case !desired && subscribed:
			delete(x.subscribed, name)
			delete(x.waiting, name)
			unsubscribe = append(unsubscribe, name)
		}
	}
	return subscribe, unsubscribe
}

// nextWorld returns the next request of a state-of-the-world stream, which carries
// all names. A rejection carries the names of the request before: istiod ignores
// those beside it, so that a change follows in a request of its own.
func (x *typeStream) nextWorld() (request, bool) {
	i := x.interest
	if len(i.names) == 0 {
		x.acks = nil
		return x.unsubscribeAll()
	}
	if len(x.acks) > 0 {
		a := x.acks[0]
		x.acks = x.acks[1:]
		r := request{url: i.url, nonce: a.nonce, version: a.version, err: a.err}
		if a.err == nil {
			r.subscribe, _ = x.relist()
		}
		r.names = x.list
		return r, true
	}
	added, changed := x.relist()
	if !changed {
		return request{}, false
	}
	if !x.requested {
		x.version = i.state.Version
	}
	x.requested = true
	return request{url: i.url, nonce: x.nonce, version: i.state.Version, names: x.list, subscribe: added}, true
}

// unsubscribeAll returns the request that unsubscribes from a type in the state of
// the world. A stream that never sent a name cannot unsubscribe from the wildcard:
// its responses are ignored instead.
func (x *typeStream) unsubscribeAll() (request, bool) {
	clear(x.dirty)
	if len(x.subscribed) == 0 {
		return request{}, false
	}
	clear(x.subscribed)
	clear(x.waiting)
	x.list = nil
	if !x.explicit {
		x.explicit = true // the next list has to look like a change
		return request{}, false
	}
	return request{url: x.interest.url, nonce: x.nonce, version: x.interest.state.Version}, true
}

// relist updates the list of names; it returns what is new in it and whether it
// changed. Until a name was sent, the wildcard is an empty list, which every server
// knows. go-control-plane's SnapshotCache answers an explicit one with nothing.
func (x *typeStream) relist() (added []string, changed bool) {
	added, removed := x.applyDirty(math.MaxInt)
	if len(added)+len(removed) == 0 {
		return nil, false
	}
	x.list = slices.Sorted(maps.Keys(x.interest.names))
	if !x.explicit && slices.Equal(x.list, []string{Wildcard}) {
		x.list = nil
	} else {
		x.explicit = true
	}
	return added, true
}

func (x *typeStream) startTimeout(names []string, at time.Time) {
	if len(names) == 0 {
		return
	}
	for _, name := range names {
		x.waiting[name] = struct{}{}
	}
	x.timeouts = append(x.timeouts, timeout{at: at, names: names})
}

// expired returns the names that were not answered in time, sorted.
func (x *typeStream) expired(now time.Time) []string {
	var names []string
	for len(x.timeouts) > 0 && !x.timeouts[0].at.After(now) {
		for _, name := range x.timeouts[0].names {
			if has(x.waiting, name) {
				delete(x.waiting, name)
				names = append(names, name)
			}
		}
		x.timeouts = x.timeouts[1:]
	}
	slices.Sort(names)
	return names
}
