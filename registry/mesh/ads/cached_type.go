package ads

import (
	"errors"
	"maps"
	"slices"
)

// cachedType is one resource type with its known resources, of any Go type.
// Only Run's goroutine touches it.
type cachedType interface {
	// applyResponse applies the valid resources of a response and notifies the subscriber. The
	// error is what to reject the response with.
	applyResponse(r discoveryResponse, ts *typeStream) error
	// expireNames reports names that were asked for and not answered.
	expireNames(names []string, ts *typeStream)
	// reportDisconnect reports a connection that failed, or a stream that ended.
	reportDisconnect(err error, d disconnection)
	// cachedVersions returns the held resources and their versions, at most limit
	// bytes of names.
	cachedVersions(limit int) map[string]string
}

// disconnection is when a connection failed.
type disconnection int

const (
	connectFailed disconnection = iota // before it delivered anything
	streamEnded                        // after it delivered
)

// cachedTypeOf is a cached type whose resources are decoded as T.
type cachedTypeOf[T any] struct {
	kind               Kind[T]
	subscribed         *subscribedType
	handle             func(Event[T])
	epoch              *int // of the stream that delivers now
	connection         *int // number of its connection
	resources          map[string]*cachedResource[T]
	hasher             hasher
	namesBySum         map[digest]string // names of held resources that came without an envelope
	lastNamelessErrors map[string]string // errors without a name that were reported last
	completeEpoch      int               // epoch in which all resources were reported
}

// cachedResource is what is known of one name.
type cachedResource[T any] struct {
	hasValue bool
	isAbsent bool // the server reported that there is none
	value    T
	version  string
	sum      digest
	epoch    int   // reported in last
	unknown  error // asked for and not answered since
	invalid  error // why the newest was rejected
}

func newCachedType[T any](k Kind[T], handle func(Event[T]), epoch, connection *int) *cachedTypeOf[T] {
	t := &cachedTypeOf[T]{
		kind: k, subscribed: newSubscribedType(k.URL), handle: handle, epoch: epoch, connection: connection,
		resources: map[string]*cachedResource[T]{}, hasher: newHasher(), namesBySum: map[digest]string{}, lastNamelessErrors: map[string]string{},
	}
	t.subscribed.cached, t.subscribed.onForget = t, t.forgetDropped
	return t
}

// forgetDropped forgets a name without a subscription, unless the wildcard covers it.
func (t *cachedTypeOf[T]) forgetDropped(name string) {
	if name == Wildcard {
		t.completeEpoch = 0
	}
	if r := t.resources[name]; r == nil || has(t.subscribed.names, Wildcard) && r.hasValue {
		return
	}
	t.forget(name)
}

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
var errUnanswered = errors.New("ads: asked for, and not answered")

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

// expireWildcard ends the wait for the wildcard. After a late one, its resources are
// complete by now. Silence means that nothing changed, or nothing at all.
func (t *cachedTypeOf[T]) expireWildcard(b *eventBuilder[T], ts *typeStream) {
	if ts.wildcardAddedLater && ts.responses > ts.responsesBeforeWildcard {
		t.markComplete(b, ts)
		return
	}
	var held []string
	current := true
	for name, r := range t.resources {
		if r.hasValue {
			current = current && ts.silenceMeansUnchanged(name)
			held = append(held, name)
		}
	}
	if !current || len(held) == 0 {
		t.setUnknown(t.resource(Wildcard), errUnanswered)
		b.unknown(Wildcard, errUnanswered)
		return
	}
	for _, name := range held {
		t.resources[name].epoch = ts.stream.epoch
		b.confirmed(name)
	}
	t.markComplete(b, ts)
}

// markComplete records that all resources were reported in this epoch.
func (t *cachedTypeOf[T]) markComplete(b *eventBuilder[T], ts *typeStream) {
	if t.completeEpoch != ts.stream.epoch {
		t.completeEpoch = ts.stream.epoch
		b.complete()
	}
}

func (t *cachedTypeOf[T]) watch(names []string) {
	var added []string
	for _, name := range names {
		if t.subscribed.add(name) {
			added = append(added, name)
		}
	}
	t.replay(added)
}

// unwatch removes names. With the wildcard, all names that only it covered are
// dropped.
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

// replay reports what is known of names, one event per stream that reported it.
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
