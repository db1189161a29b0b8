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
	t.forget(Wildcard) // its record can only say that it is unknown
	b.deliver()
	return d.rejection()
}

// isComplete reports whether a response holds every resource, so that a missing one
// is gone.
func (t *cachedTypeOf[T]) isComplete(ts *typeStream) bool {
	if ts.isDelta() {
		return ts.responses == 1 && ts.hasWildcard() && !ts.wildcardAddedLater
	}
	return t.kind.Full
}

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

// reportInvalid reports rejected resources, once for each error.
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
	for place, err := range d.nameless {
		texts[place] = err.Error()
		if t.lastNamelessErrors[place] != texts[place] {
			b.nameless(place, err)
		}
	}
	t.lastNamelessErrors = texts
}

func (t *cachedTypeOf[T]) removeNamed(names []string, d *parsedResponse[T], b *eventBuilder[T], ts *typeStream) {
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

// removeMissing removes what a complete response does not hold. A delta server may
// leave out resources whose newest version it knows we hold. If it repeats such
// resources, it does not compare versions.
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
