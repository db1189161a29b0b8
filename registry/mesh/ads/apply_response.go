package ads

import (
	"maps"
	"slices"
)

func (t *cachedTypeOf[T]) applyResponse(r discoveryResponse, ts *typeStream) error {
	d := t.parse(r, ts)
	b := t.newEvent(ts.stream.epoch)
	for i := range d.valid {
		t.storeValid(&d.valid[i], b, ts)
	}
	t.reportInvalid(&d, b, ts)
	t.removeNamed(r.removed, &d, b, ts)
	if t.isComplete(ts) && len(d.nameless) == 0 {
		t.removeMissing(&d, b, ts)
		if ts.hasWildcard() && !ts.wildcardAddedLater {
			t.markComplete(b, ts)
		}
	}
	if !ts.wildcardAddedLater {
		delete(ts.unansweredNames, Wildcard)
	}
	t.forget(Wildcard) // its entry only exists while it is unknown
	b.deliver()
	return d.rejection()
}

// isComplete reports whether the response holds every resource, so that a missing one was
// removed. In delta, that is the first response to the wildcard of the first request.
func (t *cachedTypeOf[T]) isComplete(ts *typeStream) bool {
	if ts.isDelta() {
		return ts.responses == 1 && ts.hasWildcard() && !ts.wildcardAddedLater
	}
	return t.kind.Full
}

// storeValid stores a valid resource, and adds it to the event if it changed or is confirmed.
func (t *cachedTypeOf[T]) storeValid(d *decodedResource[T], b *eventBuilder[T], ts *typeStream) {
	r := t.resource(d.name)
	changed := !d.unchanged || !r.hasValue || r.invalid != nil
	confirmed := r.epoch != ts.stream.epoch || r.unknown != nil
	if !d.unchanged {
		t.clearValue(r)
		r.hasValue, r.value, r.sum = true, d.value, d.sum
		t.subscribed.state.Resources++
	}
	if !d.named {
		t.namesBySum[d.sum] = d.name
	}
	r.version, r.isAbsent, r.invalid, r.epoch = d.version, false, nil, ts.stream.epoch
	t.setUnknown(r, nil)
	delete(ts.unansweredNames, d.name)
	switch {
	case changed:
		b.changed(d.name, r)
	case confirmed:
		b.confirmed(d.name)
	}
}

// reportInvalid records the rejected resources, and adds those with a new error to the event.
func (t *cachedTypeOf[T]) reportInvalid(d *parsedResponse[T], b *eventBuilder[T], ts *typeStream) {
	for name, err := range d.failed {
		r := t.resource(name)
		if r.invalid == nil || r.invalid.Error() != err.Error() {
			b.invalid(name, err)
		}
		r.invalid, r.isAbsent, r.epoch = err, false, ts.stream.epoch
		t.setUnknown(r, nil)
		delete(ts.unansweredNames, name)
	}
	texts := make(map[string]string, len(d.nameless))
	for position, err := range d.nameless {
		texts[position] = err.Error()
		if t.lastNamelessErrors[position] != texts[position] {
			b.nameless(position, err)
		}
	}
	t.lastNamelessErrors = texts
}

// removeNamed removes the resources that a delta response lists as removed.
func (t *cachedTypeOf[T]) removeNamed(
	names []string, d *parsedResponse[T], b *eventBuilder[T], ts *typeStream,
) {
	for _, name := range names {
		if has(d.names, name) || !t.subscribed.covers(name) {
			continue
		}
		if t.resources[name] == nil && !has(ts.unansweredNames, name) && !has(t.subscribed.names, name) {
			continue
		}
		t.remove(name, b, ts)
	}
}

// removeMissing removes the cached resources that are missing in a complete response. A delta
// server may omit a resource in the version that we presented, which is then confirmed. A
// server that repeats some of the presented versions does not compare them, so that its
// missing resources were removed.
func (t *cachedTypeOf[T]) removeMissing(d *parsedResponse[T], b *eventBuilder[T], ts *typeStream) {
	for _, name := range slices.Sorted(maps.Keys(t.resources)) {
		r := t.resources[name]
		switch {
		case has(d.names, name) || r.isAbsent || !r.hasValue && r.invalid == nil:
		case ts.isDelta() && r.epoch == ts.stream.epoch:
		case ts.isDelta() && ts.presentedVersions[name] != "" && !d.repeatsPresented:
			r.epoch = ts.stream.epoch
			delete(ts.unansweredNames, name)
			b.confirmed(name)
		default:
			t.remove(name, b, ts)
		}
	}
}

// remove records that a resource does not exist, and adds it to the event.
func (t *cachedTypeOf[T]) remove(name string, b *eventBuilder[T], ts *typeStream) {
	r := t.resource(name)
	delete(ts.unansweredNames, name)
	if r.isAbsent {
		return
	}
	b.removed(name)
	t.clearValue(r)
	t.setUnknown(r, nil)
	r.isAbsent, r.epoch = true, ts.stream.epoch
	if !has(t.subscribed.names, name) {
		delete(t.resources, name)
	}
}
