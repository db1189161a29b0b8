package ads

import (
	"maps"
	"math"
	"slices"
	"time"
)

// subscribedType is the names of one type that are subscribed to. Only Run's goroutine
// touches it.
type subscribedType struct {
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

func newSubscribedType(url string) *subscribedType {
	return &subscribedType{url: url, names: map[string]struct{}{}, changed: map[string]struct{}{}, dropped: map[string]struct{}{}}
}

// has reports whether a name is subscribed to, by itself or by the wildcard.
func (t *subscribedType) has(name string) bool { return has(t.names, name) || has(t.names, Wildcard) }

// covers reports whether a name is subscribed to, or was until lately.
func (t *subscribedType) covers(name string) bool {
	return t.has(name) || has(t.dropped, name) || has(t.dropped, Wildcard)
}

func (t *subscribedType) isEmpty() bool { return len(t.names) == 0 && len(t.dropped) == 0 }

func has(set map[string]struct{}, name string) bool {
	_, ok := set[name]
	return ok
}

// forgetDropped forgets dropped names that no session asks for any more. Sooner
// would be wrong: the server does not notice a name that is dropped and added again
// at once, and would not send it again.
func (t *subscribedType) forgetDropped(isSubscribed func(name string) bool) {
	for name := range t.dropped {
		switch {
		case has(t.names, name):
			delete(t.dropped, name)
		case isSubscribed(name), !has(t.names, Wildcard) && isSubscribed(Wildcard):
		default:
			delete(t.dropped, name)
			t.forget(name)
		}
	}
}

func (t *subscribedType) add(name string) bool {
	if has(t.names, name) {
		return false
	}
	t.names[name] = struct{}{}
	t.changed[name] = struct{}{}
	return true
}

func (t *subscribedType) drop(name string) bool {
	if !has(t.names, name) {
		return false
	}
	delete(t.names, name)
	t.changed[name] = struct{}{}
	t.dropped[name] = struct{}{}
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
	resourceType  *subscribedType
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

func newTypeStream(s *session, t *subscribedType) *typeStream {
	ts := &typeStream{
		session: s, resourceType: t, subscribed: map[string]struct{}{}, dirty: map[string]struct{}{},
		waiting: map[string]struct{}{},
	}
	maps.Copy(ts.dirty, t.names)
	return ts
}

// isDelta reports whether the stream speaks the incremental variant.
func (ts *typeStream) isDelta() bool { return ts.session.mode == Delta }

// hasWildcard reports whether the server knows that we ask for everything.
func (ts *typeStream) hasWildcard() bool { return has(ts.subscribed, Wildcard) }

// isCurrent reports whether silence about a held resource means that it has not
// changed: the server knows which version is held. That requires versions, which istiod
// does not send.
func (ts *typeStream) isCurrent(name string) bool {
	if ts.isDelta() {
		return ts.presented[name] != ""
	}
	return ts.version != "" && ts.responses == 0
}

func (ts *typeStream) next() (request, bool) {
	if ts.isDelta() {
		return ts.nextDelta()
	}
	return ts.nextWorld()
}

// nextDelta returns the next request of a delta stream. It never acknowledges and
// subscribes at once: istiod ignores a subscription beside a rejection.
func (ts *typeStream) nextDelta() (request, bool) {
	t := ts.resourceType
	if len(t.names) == 0 {
		ts.acks = nil // a rejection of a type without names would crash istiod
	}
	if len(ts.acks) > 0 {
		a := ts.acks[0]
		ts.acks = ts.acks[1:]
		return request{url: t.url, nonce: a.nonce, err: a.err}, true
	}
	r := request{url: t.url}
	r.subscribe, r.unsubscribe = ts.applyDirty(maxNames)
	if len(r.subscribe)+len(r.unsubscribe) == 0 {
		return request{}, false
	}
	if !ts.requested {
		r.versions = ts.resourceType.cached.versions(maxNames)
		ts.presented = r.versions
	}
	ts.requested = true
	return r, true
}

// applyDirty handles dirty names, up to limit bytes of them, and returns those that
// the server must be sent, sorted.
func (ts *typeStream) applyDirty(limit int) (subscribe, unsubscribe []string) {
	for _, name := range slices.Sorted(maps.Keys(ts.dirty)) {
		if limit -= len(name) + framing; limit < 0 && len(subscribe)+len(unsubscribe) > 0 {
			break
		}
		delete(ts.dirty, name)
		subscribed, desired := has(ts.subscribed, name), has(ts.resourceType.names, name)
		switch {
		case desired && !subscribed:
			ts.subscribed[name] = struct{}{}
			subscribe = append(subscribe, name)
			if name == Wildcard {
				ts.lateWildcard, ts.wildcardResponses = ts.requested, ts.responses
			}
		case !desired && subscribed:
			delete(ts.subscribed, name)
			delete(ts.waiting, name)
			unsubscribe = append(unsubscribe, name)
		}
	}
	return subscribe, unsubscribe
}

// nextWorld returns the next request of a state-of-the-world stream, which carries
// all names. A rejection carries the names of the request before: istiod ignores
// those beside it, so that a change follows in a request of its own.
func (ts *typeStream) nextWorld() (request, bool) {
	t := ts.resourceType
	if len(t.names) == 0 {
		ts.acks = nil
		return ts.unsubscribeAll()
	}
	if len(ts.acks) > 0 {
		a := ts.acks[0]
		ts.acks = ts.acks[1:]
		r := request{url: t.url, nonce: a.nonce, version: a.version, err: a.err}
		if a.err == nil {
			r.subscribe, _ = ts.relist()
		}
		r.names = ts.list
		return r, true
	}
	added, changed := ts.relist()
	if !changed {
		return request{}, false
	}
	if !ts.requested {
		ts.version = t.state.Version
	}
	ts.requested = true
	return request{url: t.url, nonce: ts.nonce, version: t.state.Version, names: ts.list, subscribe: added}, true
}

// unsubscribeAll returns the request that unsubscribes from a type in the state of
// the world. A stream that never sent a name cannot unsubscribe from the wildcard:
// its responses are ignored instead.
func (ts *typeStream) unsubscribeAll() (request, bool) {
	clear(ts.dirty)
	if len(ts.subscribed) == 0 {
		return request{}, false
	}
	clear(ts.subscribed)
	clear(ts.waiting)
	ts.list = nil
	if !ts.explicit {
		ts.explicit = true // the next list has to look like a change
		return request{}, false
	}
	return request{url: ts.resourceType.url, nonce: ts.nonce, version: ts.resourceType.state.Version}, true
}

// relist updates the list of names; it returns what is new in it and whether it
// changed. Until a name was sent, the wildcard is an empty list, which every server
// knows. go-control-plane's SnapshotCache answers an explicit one with nothing.
func (ts *typeStream) relist() (added []string, changed bool) {
	added, removed := ts.applyDirty(math.MaxInt)
	if len(added)+len(removed) == 0 {
		return nil, false
	}
	ts.list = slices.Sorted(maps.Keys(ts.resourceType.names))
	if !ts.explicit && slices.Equal(ts.list, []string{Wildcard}) {
		ts.list = nil
	} else {
		ts.explicit = true
	}
	return added, true
}

func (ts *typeStream) startTimeout(names []string, at time.Time) {
	if len(names) == 0 {
		return
	}
	for _, name := range names {
		ts.waiting[name] = struct{}{}
	}
	ts.timeouts = append(ts.timeouts, timeout{at: at, names: names})
}

// expired returns the names that were not answered in time, sorted.
func (ts *typeStream) expired(now time.Time) []string {
	var names []string
	for len(ts.timeouts) > 0 && !ts.timeouts[0].at.After(now) {
		for _, name := range ts.timeouts[0].names {
			if has(ts.waiting, name) {
				delete(ts.waiting, name)
				names = append(names, name)
			}
		}
		ts.timeouts = ts.timeouts[1:]
	}
	slices.Sort(names)
	return names
}
