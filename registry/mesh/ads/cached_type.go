package ads

import (
	"errors"
	"maps"
	"slices"
)

// cachedType is one resource type with its known resources, of any Go type. It is owned by
// Run's goroutine.
type cachedType interface {
	// applyResponse stores the valid resources of a response and calls the handler. The error
	// rejects the response.
	applyResponse(r discoveryResponse, ts *typeStream) error

	// expireNames reports names that were requested and not answered in time.
	expireNames(names []string, ts *typeStream)

	// reportDisconnect reports a connection that failed, or a stream that ended.
	reportDisconnect(err error, d disconnection)

	// cachedVersions returns the versions of the resources that have a value, by name. Names
	// and versions together have at most limit bytes.
	cachedVersions(limit int) map[string]string
}

// disconnection is when a connection failed.
type disconnection int

const (
	connectFailed disconnection = iota // before the first response
	streamEnded                        // after a response
)

// cachedTypeOf is a cachedType whose resources are decoded as T.
type cachedTypeOf[T any] struct {
	// Immutable. epoch and connection point to fields of clientLoop, which change.
	kind       Kind[T]
	subscribed *subscribedType
	handle     func(Event[T])
	hasher     hasher
	epoch      *int
	connection *int

	// Owned by Run's goroutine.
	resources          map[string]*cachedResource[T]
	namesBySum         map[digest]string // of resources that were received without an envelope
	lastNamelessErrors map[string]string // by position: errors of the last response without a name
	completeEpoch      int               // newest epoch in which all resources were reported
}

// cachedResource is the knowledge about one name. Unknown and invalid resources keep their
// last valid value, if they have one.
type cachedResource[T any] struct {
	hasValue bool
	value    T
	version  string // of value
	sum      digest // of value

	isAbsent bool  // the server reported that it does not exist
	unknown  error // set while the last request is unanswered
	invalid  error // why the newest version was rejected
	epoch    int   // of the stream that reported it last
}

func newCachedType[T any](k Kind[T], handle func(Event[T]), epoch, connection *int) *cachedTypeOf[T] {
	t := &cachedTypeOf[T]{
		kind: k, subscribed: newSubscribedType(k.URL), handle: handle, epoch: epoch, connection: connection,
		resources: map[string]*cachedResource[T]{}, hasher: newHasher(),
		namesBySum: map[digest]string{}, lastNamelessErrors: map[string]string{},
	}
	t.subscribed.cached, t.subscribed.onForget = t, t.forgetDropped
	return t
}

// forgetDropped forgets a name that is no longer subscribed to. A resource with a value stays
// if the wildcard covers it.
func (t *cachedTypeOf[T]) forgetDropped(name string) {
	if name == Wildcard {
		t.completeEpoch = 0
	}
	if r := t.resources[name]; r == nil || has(t.subscribed.names, Wildcard) && r.hasValue {
		return
	}
	t.forget(name)
}

// resource returns the entry of a name, and adds it if there is none.
func (t *cachedTypeOf[T]) resource(name string) *cachedResource[T] {
	r := t.resources[name]
	if r == nil {
		r = &cachedResource[T]{}
		t.resources[name] = r
	}
	return r
}

func (t *cachedTypeOf[T]) forget(name string) {
	if r := t.resources[name]; r != nil {
		t.clearValue(r)
		t.setUnknown(r, nil)
		delete(t.resources, name)
	}
}

func (t *cachedTypeOf[T]) clearValue(r *cachedResource[T]) {
	if r.hasValue {
		delete(t.namesBySum, r.sum)
		t.subscribed.state.Resources--
	}
	var none T
	r.hasValue, r.value, r.version, r.sum, r.invalid = false, none, "", digest{}, nil
}

func (t *cachedTypeOf[T]) setUnknown(r *cachedResource[T], err error) {
	switch {
	case r.unknown == nil && err != nil:
		t.subscribed.state.Unknown++
	case r.unknown != nil && err == nil:
		t.subscribed.state.Unknown--
	}
	r.unknown = err
}

func (t *cachedTypeOf[T]) cachedVersions(limit int) map[string]string {
	versions := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(t.resources)) {
		r := t.resources[name]
		if !r.hasValue {
			continue
		}
		if limit -= len(name) + len(r.version) + nameOverhead; limit < 0 {
			break
		}
		versions[name] = r.version
	}
	return versions
}

func (t *cachedTypeOf[T]) reportDisconnect(err error, d disconnection) {
	if len(t.subscribed.names) == 0 {
		return
	}
	b := t.newEvent(*t.epoch)
	b.hasContent = true
	if d == streamEnded {
		b.event.Ended = err
	} else {
		b.event.Disconnected = err
	}
	b.deliver()
}

// errUnanswered is the error of an Unknown name.
var errUnanswered = errors.New("ads: resource requested but not received")

func (t *cachedTypeOf[T]) expireNames(names []string, ts *typeStream) {
	b := t.newEvent(ts.stream.epoch)
	for _, name := range names {
		if name == Wildcard {
			t.expireWildcard(b, ts)
			continue
		}
		r := t.resource(name)
		switch {
		case r.isAbsent || r.hasValue && r.epoch == ts.stream.epoch:
		case r.hasValue && ts.silenceMeansUnchanged(name):
			r.epoch = ts.stream.epoch
			b.confirmed(name)
		default:
			if !r.hasValue {
				r.epoch = ts.stream.epoch
			}
			t.setUnknown(r, errUnanswered)
			b.unknown(name, errUnanswered)
		}
	}
	b.deliver()
}

// expireWildcard decides about a wildcard that was not answered in time. If it was added
// later, every response since then may have answered it, and all resources are taken as
// reported. If nothing was received, resources whose versions the server knows are
// unchanged. Otherwise the wildcard is unknown.
func (t *cachedTypeOf[T]) expireWildcard(b *eventBuilder[T], ts *typeStream) {
	if ts.wildcardAddedLater && ts.responses > ts.responsesBeforeWildcard {
		t.markComplete(b, ts)
		return
	}
	var cached []string
	unchanged := true
	for name, r := range t.resources {
		if r.hasValue {
			unchanged = unchanged && ts.silenceMeansUnchanged(name)
			cached = append(cached, name)
		}
	}
	if !unchanged || len(cached) == 0 {
		t.setUnknown(t.resource(Wildcard), errUnanswered)
		b.unknown(Wildcard, errUnanswered)
		return
	}
	for _, name := range cached {
		t.resources[name].epoch = ts.stream.epoch
		b.confirmed(name)
	}
	t.markComplete(b, ts)
}

// markComplete records and reports that all resources were reported in the stream's epoch.
func (t *cachedTypeOf[T]) markComplete(b *eventBuilder[T], ts *typeStream) {
	if t.completeEpoch != ts.stream.epoch {
		t.completeEpoch = ts.stream.epoch
		b.complete()
	}
}

// watch adds names and reports the resources that are already known.
func (t *cachedTypeOf[T]) watch(names []string) {
	var added []string
	for _, name := range names {
		if t.subscribed.add(name) {
			added = append(added, name)
		}
	}
	t.replay(added)
}

// unwatch removes names. If the wildcard is removed, so are all names that only it covered.
func (t *cachedTypeOf[T]) unwatch(names []string) {
	for _, name := range names {
		if !t.subscribed.drop(name) || name != Wildcard {
			continue
		}
		for known := range t.resources {
			if !has(t.subscribed.names, known) {
				t.subscribed.droppedNames[known] = struct{}{}
			}
		}
	}
}

// replay reports the known resources among names, with one event for each epoch.
func (t *cachedTypeOf[T]) replay(names []string) {
	builders := map[int]*eventBuilder[T]{}
	at := func(epoch int) *eventBuilder[T] {
		if builders[epoch] == nil {
			builders[epoch] = t.newEvent(epoch)
		}
		return builders[epoch]
	}
	if slices.Contains(names, Wildcard) {
		names = slices.Collect(maps.Keys(t.resources))
		if t.completeEpoch != 0 && t.completeEpoch == *t.epoch {
			at(t.completeEpoch).complete()
		}
	}
	for _, name := range names {
		r := t.resources[name]
		if r == nil {
			continue
		}
		b := at(r.epoch)
		if r.hasValue {
			b.changed(name, r)
		}
		if r.isAbsent {
			b.removed(name)
		}
		if r.unknown != nil {
			b.unknown(name, r.unknown)
		}
		if r.invalid != nil {
			b.invalid(name, r.invalid)
		}
	}
	for _, epoch := range slices.Sorted(maps.Keys(builders)) {
		builders[epoch].deliver()
	}
}
