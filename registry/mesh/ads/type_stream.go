package ads

import (
	"maps"
	"math"
	"slices"
	"time"
)

// maxNamesBytes bounds the names in one delta request, in bytes: istiod accepts
// requests of up to 4 MiB, and held names are sent twice. nameOverhead is more than
// the bytes around a name and its version.
const (
	maxNamesBytes = 1 << 20
	nameOverhead  = 16
)

// typeStream is the state of one type on one stream. Only Run's goroutine touches
// it.
type typeStream struct {
	stream       *adsStream
	resourceType *subscribedType
	requested    bool
	nonce        string // of the last response

	requestedNames map[string]struct{} // names that the server knows we ask for
	sentNames      []string            // state of the world: the names of the last request
	everSentNames  bool                // state of the world: a request held names, see relist
	dirtyNames     map[string]struct{} // names whose subscription has to be looked at
	pendingAcks    []ack               // to be sent, in order

	responses               int               // of this type on this stream
	wildcardAddedLater      bool              // the wildcard was requested after other names: its response cannot be distinguished from theirs
	responsesBeforeWildcard int               // responses before that
	presentedVersions       map[string]string // versions of held resources that were sent to the server
	presentedVersion        string            // state of the world: the held version that was sent

	unansweredNames map[string]struct{} // asked for, not answered yet
	answerTimeouts  []answerTimeout     // in order
}

// ack acknowledges a response, or rejects it with err.
type ack struct {
	nonce, version string
	err            error
}

type answerTimeout struct {
	at    time.Time
	names []string
}

func newTypeStream(s *adsStream, t *subscribedType) *typeStream {
	ts := &typeStream{
		stream: s, resourceType: t, requestedNames: map[string]struct{}{}, dirtyNames: map[string]struct{}{},
		unansweredNames: map[string]struct{}{},
	}
	maps.Copy(ts.dirtyNames, t.names)
	return ts
}

// isDelta reports whether the stream speaks the incremental variant.
func (ts *typeStream) isDelta() bool { return ts.stream.mode == Delta }

// hasWildcard reports whether the server knows that we ask for everything.
func (ts *typeStream) hasWildcard() bool { return has(ts.requestedNames, Wildcard) }

// silenceMeansUnchanged reports whether silence about a held resource means that it has not
// changed: the server knows which version is held. That requires versions, which istiod
// does not send.
func (ts *typeStream) silenceMeansUnchanged(name string) bool {
	if ts.isDelta() {
		return ts.presentedVersions[name] != ""
	}
	return ts.presentedVersion != "" && ts.responses == 0
}

func (ts *typeStream) nextRequest() (discoveryRequest, bool) {
	if ts.isDelta() {
		return ts.nextDelta()
	}
	return ts.nextSotW()
}

// nextDelta returns the next request of a delta stream. It never acknowledges and
// subscribes at once: istiod ignores a subscription beside a rejection.
func (ts *typeStream) nextDelta() (discoveryRequest, bool) {
	t := ts.resourceType
	if len(t.names) == 0 {
		ts.pendingAcks = nil // a rejection of a type without names would crash istiod
	}
	if len(ts.pendingAcks) > 0 {
		a := ts.pendingAcks[0]
		ts.pendingAcks = ts.pendingAcks[1:]
		return discoveryRequest{url: t.url, nonce: a.nonce, err: a.err}, true
	}
	r := discoveryRequest{url: t.url}
	r.subscribe, r.unsubscribe = ts.updateRequestedNames(maxNamesBytes)
	if len(r.subscribe)+len(r.unsubscribe) == 0 {
		return discoveryRequest{}, false
	}
	if !ts.requested {
		r.versions = ts.resourceType.cached.cachedVersions(maxNamesBytes)
		ts.presentedVersions = r.versions
	}
	ts.requested = true
	return r, true
}

// updateRequestedNames handles dirty names, up to limit bytes of them, and returns those that
// the server must be sent, sorted.
func (ts *typeStream) updateRequestedNames(limit int) (subscribe, unsubscribe []string) {
	for _, name := range slices.Sorted(maps.Keys(ts.dirtyNames)) {
		if limit -= len(name) + nameOverhead; limit < 0 && len(subscribe)+len(unsubscribe) > 0 {
			break
		}
		delete(ts.dirtyNames, name)
		subscribed, desired := has(ts.requestedNames, name), has(ts.resourceType.names, name)
		switch {
		case desired && !subscribed:
			ts.requestedNames[name] = struct{}{}
			subscribe = append(subscribe, name)
			if name == Wildcard {
				ts.wildcardAddedLater, ts.responsesBeforeWildcard = ts.requested, ts.responses
			}
		case !desired && subscribed:
			delete(ts.requestedNames, name)
			delete(ts.unansweredNames, name)
			unsubscribe = append(unsubscribe, name)
		}
	}
	return subscribe, unsubscribe
}

// nextSotW returns the next request of a state-of-the-world stream, which carries
// all names. A rejection carries the names of the request before: istiod ignores
// those beside it, so that a change follows in a request of its own.
func (ts *typeStream) nextSotW() (discoveryRequest, bool) {
	t := ts.resourceType
	if len(t.names) == 0 {
		ts.pendingAcks = nil
		return ts.unsubscribeAll()
	}
	if len(ts.pendingAcks) > 0 {
		a := ts.pendingAcks[0]
		ts.pendingAcks = ts.pendingAcks[1:]
		r := discoveryRequest{url: t.url, nonce: a.nonce, version: a.version, err: a.err}
		if a.err == nil {
			r.subscribe, _ = ts.updateSentNames()
		}
		r.names = ts.sentNames
		return r, true
	}
	added, changed := ts.updateSentNames()
	if !changed {
		return discoveryRequest{}, false
	}
	if !ts.requested {
		ts.presentedVersion = t.state.Version
	}
	ts.requested = true
	return discoveryRequest{url: t.url, nonce: ts.nonce, version: t.state.Version, names: ts.sentNames, subscribe: added}, true
}

// unsubscribeAll returns the request that unsubscribes from a type in the state of
// the world. A stream that never sent a name cannot unsubscribe from the wildcard:
// its responses are ignored instead.
func (ts *typeStream) unsubscribeAll() (discoveryRequest, bool) {
	clear(ts.dirtyNames)
	if len(ts.requestedNames) == 0 {
		return discoveryRequest{}, false
	}
	clear(ts.requestedNames)
	clear(ts.unansweredNames)
	ts.sentNames = nil
	if !ts.everSentNames {
		ts.everSentNames = true // the next list has to look like a change
		return discoveryRequest{}, false
	}
	return discoveryRequest{url: ts.resourceType.url, nonce: ts.nonce, version: ts.resourceType.state.Version}, true
}

// updateSentNames updates the list of names; it returns what is new in it and whether it
// changed. Until a name was sent, the wildcard is an empty list, which every server
// knows. go-control-plane's SnapshotCache answers an explicit one with nothing.
func (ts *typeStream) updateSentNames() (added []string, changed bool) {
	added, removed := ts.updateRequestedNames(math.MaxInt)
	if len(added)+len(removed) == 0 {
		return nil, false
	}
	ts.sentNames = slices.Sorted(maps.Keys(ts.resourceType.names))
	if !ts.everSentNames && slices.Equal(ts.sentNames, []string{Wildcard}) {
		ts.sentNames = nil
	} else {
		ts.everSentNames = true
	}
	return added, true
}

func (ts *typeStream) startTimeout(names []string, at time.Time) {
	if len(names) == 0 {
		return
	}
	for _, name := range names {
		ts.unansweredNames[name] = struct{}{}
	}
	ts.answerTimeouts = append(ts.answerTimeouts, answerTimeout{at: at, names: names})
}

// removeExpiredNames returns the names that were not answered in time, sorted.
func (ts *typeStream) removeExpiredNames(now time.Time) []string {
	var names []string
	for len(ts.answerTimeouts) > 0 && !ts.answerTimeouts[0].at.After(now) {
		for _, name := range ts.answerTimeouts[0].names {
			if has(ts.unansweredNames, name) {
				delete(ts.unansweredNames, name)
				names = append(names, name)
			}
		}
		ts.answerTimeouts = ts.answerTimeouts[1:]
	}
	slices.Sort(names)
	return names
}
