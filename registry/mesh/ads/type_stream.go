package ads

import (
	"maps"
	"math"
	"slices"
	"time"
)

// maxNamesBytes bounds the names in one delta request. istiod accepts requests of up to
// 4 MiB, and the names of cached resources are sent twice. nameOverhead is an upper bound
// for the encoding around a name and its version.
const (
	maxNamesBytes = 1 << 20
	nameOverhead  = 16
)

// typeStream is the state of one resource type on one stream. It decides which request
// comes next. A new stream has a new typeStream, in which all names are dirty.
//
// Delta, with the wildcard, v1 cached of a, and no version of b:
//
//  1. Request:  subscribe *, initial versions {a: v1, b: ""}, no nonce. The timeout starts.
//  2. Response: nonce n1, resources c and d, removed a. It is complete, because it answers
//     the wildcard: a is removed, b is missing and therefore removed too, c and d are stored.
//     Had the response not mentioned a, a would be confirmed: the server knows version v1.
//  3. ACK:      nonce n1, and nothing else.
//  4. Response: nonce n2, resources c (valid) and d (invalid). Only c and d can change,
//     because later delta responses are not complete. The new c is stored, the old d kept.
//  5. NACK:     nonce n2, the error of d, and nothing else. An ACK or NACK never carries
//     names: istiod ignores a subscription in a NACK.
//  6. Names e added, f dropped: one request, subscribe e, unsubscribe f, no nonce.
//  7. Neither e nor its absence is reported within resourceTimeout: e is unknown.
//  8. The stream ends. The next one continues with step 1 and the versions of c and d.
//
// State of the world, with the names a and b, both cached, and V1 as the last accepted version:
//
//  1. Request:  names [a b], version V1, no nonce. The timeout starts. The wildcard is an
//     empty list, unless the stream has sent names before.
//  2. Response: version V2, nonce n1, resource a. If the type is Full, b is missing and
//     therefore removed. Otherwise b stays unanswered.
//  3. ACK:      names [a b], version V2, nonce n1. Names that were added or dropped
//     meanwhile are already in this list.
//  4. Response: version V3, nonce n2, resource a (invalid). The old a is kept.
//  5. NACK:     names [a b], version V2, nonce n2, the error of a. The list is that of the
//     request before: istiod ignores a changed list in a NACK, so a change follows alone.
//  6. Names c added, b dropped: names [a c], version V2, nonce n2.
//  7. All names dropped: an empty list. Without a list before, the server would take it for
//     the wildcard, so nothing is sent and responses are ignored.
//  8. The stream ends. The next one continues with step 1 and version V2. If the server
//     stays silent until the timeout, nothing is newer than V2: the cached a is confirmed.
type typeStream struct {
	// Immutable.
	stream       *adsStream
	resourceType *subscribedType

	// Owned by Run's goroutine: past requests, and those still to be sent.
	requested      bool                // this type was requested on this stream
	requestedNames map[string]struct{} // the names that the server considers subscribed
	dirtyNames     map[string]struct{} // names that may have to be subscribed or unsubscribed
	pendingAcks    []ack               // in order of their responses

	// Owned by Run's goroutine: the version of cached resources that the server knows.
	presentedVersions map[string]string // delta: as sent in the first request, by name
	presentedVersion  string            // state of the world: as sent in the first request

	// Owned by Run's goroutine: state of the world only.
	sentNames     []string // the list in the last request
	everSentNames bool     // some request had a list that was not empty; see updateSentNames

	// Owned by Run's goroutine: the responses.
	nonce           string              // of the last response
	responses       int                 // how many of this type were received
	unansweredNames map[string]struct{} // requested names, until an answer or the timeout
	answerTimeouts  []answerTimeout     // in order of time

	// Owned by Run's goroutine. The response to a wildcard that was added later cannot be
	// distinguished from responses to other names. Any response after the first
	// responsesBeforeWildcard may be the one.
	wildcardAddedLater      bool
	responsesBeforeWildcard int
}

// ack is an ACK of a response or, with err, a NACK.
type ack struct {
	nonce, version string
	err            error
}

// answerTimeout is when the names of one request count as unanswered.
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

func (ts *typeStream) isDelta() bool { return ts.stream.mode == Delta }

// hasWildcard reports whether the server considers the wildcard subscribed.
func (ts *typeStream) hasWildcard() bool { return has(ts.requestedNames, Wildcard) }

// silenceMeansUnchanged reports whether a cached resource is current although the server has
// not sent it: the server was sent its version. istiod sends no versions, so it is false there.
func (ts *typeStream) silenceMeansUnchanged(name string) bool {
	if ts.isDelta() {
		return ts.presentedVersions[name] != ""
	}
	return ts.presentedVersion != "" && ts.responses == 0
}

// nextRequest returns the next request; false: nothing has to be sent.
func (ts *typeStream) nextRequest() (discoveryRequest, bool) {
	if ts.isDelta() {
		return ts.nextDelta()
	}
	return ts.nextSotW()
}

// nextDelta returns the next request of a delta stream: an ACK, a NACK or a subscription,
// never two of them in one. istiod ignores a subscription in a NACK.
func (ts *typeStream) nextDelta() (discoveryRequest, bool) {
	t := ts.resourceType
	if len(t.names) == 0 {
		ts.pendingAcks = nil // istiod crashes when a type without names is rejected
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

// updateRequestedNames updates requestedNames by dirty names, up to limit bytes of them. It
// returns the names to subscribe to and to unsubscribe from, sorted.
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

// nextSotW returns the next request of a state-of-the-world stream, which carries all names.
// A NACK carries the names of the request before, because istiod ignores a changed list in a
// NACK. The change follows in a request of its own.
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
	return discoveryRequest{
		url: t.url, nonce: ts.nonce, version: t.state.Version, names: ts.sentNames, subscribe: added,
	}, true
}

// unsubscribeAll returns the state-of-the-world request that unsubscribes from a type. A
// stream that sent only the wildcard, as an empty list, cannot unsubscribe from it. Then it
// returns false, and responses are ignored.
func (ts *typeStream) unsubscribeAll() (discoveryRequest, bool) {
	clear(ts.dirtyNames)
	if len(ts.requestedNames) == 0 {
		return discoveryRequest{}, false
	}
	clear(ts.requestedNames)
	clear(ts.unansweredNames)
	ts.sentNames = nil
	if !ts.everSentNames {
		ts.everSentNames = true // the next list must differ from the empty one, also for the wildcard
		return discoveryRequest{}, false
	}
	return discoveryRequest{
		url: ts.resourceType.url, nonce: ts.nonce, version: ts.resourceType.state.Version,
	}, true
}

// updateSentNames updates the list of a state-of-the-world request. It returns the new names
// in the list, and whether the list changed. As long as no name was sent, the wildcard is an
// empty list, which every server implements. go-control-plane's SnapshotCache returns nothing
// for an explicit wildcard.
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

// startTimeout starts the timeout of names that were just requested.
func (ts *typeStream) startTimeout(names []string, at time.Time) {
	if len(names) == 0 {
		return
	}
	for _, name := range names {
		ts.unansweredNames[name] = struct{}{}
	}
	ts.answerTimeouts = append(ts.answerTimeouts, answerTimeout{at: at, names: names})
}

// removeExpiredNames removes the names that were not answered in time from unansweredNames,
// and returns them sorted.
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
