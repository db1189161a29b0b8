package ads

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// decoded is one resource of a response.
type decoded[T any] struct {
	raw

	sum   digest
	same  bool // the bytes are those held under name
	value T
}

// parsed is a response, sorted by what to do with its resources.
type parsed[T any] struct {
	valid    []decoded[T] // one per name
	seen     map[string]struct{}
	failed   map[string]error // by name
	nameless map[string]error // by place in the response
	repeats  bool             // it has a resource in the version that the server was sent
}

func (t *cachedTypeOf[T]) apply(r response, ts *typeStream) error {
	d := t.parse(r, ts)
	b := t.newEvent(ts.session.epoch)
	for i := range d.valid {
		t.keep(&d.valid[i], b, ts)
	}
	t.reportInvalid(&d, b, ts)
	t.removeNamed(r.removed, &d, b, ts)
	if t.isComplete(ts) && len(d.nameless) == 0 {
		t.removeMissing(&d, b, ts)
		if ts.hasWildcard() && !ts.lateWildcard {
			t.markComplete(b, ts)
		}
	}
	if !ts.lateWildcard {
		delete(ts.waiting, Wildcard)
	}
	t.forget(Wildcard) // its record can only say that it is unknown
	b.deliver()
	return d.rejection()
}

// isComplete reports whether a response holds every resource, so that a missing one
// is gone.
func (t *cachedTypeOf[T]) isComplete(ts *typeStream) bool {
	if ts.isDelta() {
		return ts.responses == 1 && ts.hasWildcard() && !ts.lateWildcard
	}
	return t.kind.Full
}

// parse decodes a response. It leaves out resources that were not asked for, and
// rejects a name that is there twice, since either could be meant.
func (t *cachedTypeOf[T]) parse(r response, ts *typeStream) parsed[T] {
	all := t.decodeAll(r.resources)
	out := parsed[T]{
		valid: all[:0], seen: make(map[string]struct{}, len(all)),
		failed: map[string]error{}, nameless: map[string]error{},
	}
	duplicates := map[string]struct{}{}
	for i, d := range all {
		if d.name == Wildcard {
			d.name, d.err = "", errors.New("named *, which means everything")
		}
		if d.name == "" && d.err != nil {
			out.nameless[fmt.Sprintf("resource[%d]", i)] = d.err
			continue
		}
		if !t.subscribed.covers(d.name) {
			continue
		}
		if has(out.seen, d.name) {
			duplicates[d.name] = struct{}{}
			continue
		}
		out.seen[d.name] = struct{}{}
		out.repeats = out.repeats || d.version != "" && ts.presented[d.name] == d.version
		switch {
		case d.err != nil:
			out.failed[d.name] = d.err
		case !d.heartbeat:
			out.valid = append(out.valid, d)
		}
	}
	for name := range duplicates {
		out.failed[name] = errors.New("duplicate: the name is more than once in one response")
	}
	out.valid = slices.DeleteFunc(out.valid, func(d decoded[T]) bool { return out.failed[d.name] != nil })
	return out
}

// batch is how many resources are worth a goroutine.
const batch = 32

// decodeAll decodes resources, many of them on all processors. What is known
// changes only after it returned.
func (t *cachedTypeOf[T]) decodeAll(resources []raw) []decoded[T] {
	all := make([]decoded[T], len(resources))
	var next atomic.Int64
	work := func() {
		for {
			end := int(next.Add(batch))
			start := end - batch
			if start >= len(resources) {
				return
			}
			for i := start; i < min(end, len(resources)); i++ {
				all[i] = t.decode(resources[i])
			}
		}
	}
	var others sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (len(resources)+batch-1)/batch) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
	return all
}

// decode decodes one resource if its bytes are new.
func (t *cachedTypeOf[T]) decode(r raw) decoded[T] {
	d := decoded[T]{raw: r}
	if r.err != nil || r.heartbeat {
		return d
	}
	d.sum = t.hasher.sum(r.data)
	if !r.named {
		d.name = t.sums[d.sum]
	}
	if d.same = t.holds(d.name, d.sum); d.same {
		return d
	}
	var name string
	name, d.value, d.err = t.callDecode(r.data)
	switch {
	case !r.named:
		d.name = name
		d.same = d.err == nil && t.holds(name, d.sum)
	case d.err == nil && name != r.name:
		d.err = fmt.Errorf("envelope names it %s, the resource itself %s", brief(r.name), brief(name))
	}
	return d
}

func (t *cachedTypeOf[T]) holds(name string, sum digest) bool {
	r := t.records[name]
	return r != nil && r.held && r.sum == sum
}

// callDecode calls the subscriber's Decode. Its panic costs one resource and not
// the process, since its input comes from outside.
func (t *cachedTypeOf[T]) callDecode(data []byte) (name string, value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoder panicked: %v", p)
		}
	}()
	return t.kind.Decode(data)
}

func (t *cachedTypeOf[T]) keep(d *decoded[T], b *eventBuilder[T], ts *typeStream) {
	r := t.record(d.name)
	changed := !d.same || !r.held || r.invalid != nil
	confirmed := r.epoch != ts.session.epoch || r.unknown != nil
	if !d.same {
		t.clear(r)
		r.held, r.value, r.sum = true, d.value, d.sum
		t.subscribed.state.Resources++
	}
	if !d.named {
		t.sums[d.sum] = d.name
	}
	r.version, r.absent, r.invalid, r.epoch = d.version, false, nil, ts.session.epoch
	t.setUnknown(r, nil)
	delete(ts.waiting, d.name)
	switch {
	case changed:
		b.changed(d.name, r)
	case confirmed:
		b.confirmed(d.name)
	}
}

// reportInvalid reports rejected resources, once for each error.
func (t *cachedTypeOf[T]) reportInvalid(d *parsed[T], b *eventBuilder[T], ts *typeStream) {
	for name, err := range d.failed {
		r := t.record(name)
		if r.invalid == nil || r.invalid.Error() != err.Error() {
			b.invalid(name, err)
		}
		r.invalid, r.absent, r.epoch = err, false, ts.session.epoch
		t.setUnknown(r, nil)
		delete(ts.waiting, name)
	}
	texts := make(map[string]string, len(d.nameless))
	for place, err := range d.nameless {
		texts[place] = err.Error()
		if t.nameless[place] != texts[place] {
			b.nameless(place, err)
		}
	}
	t.nameless = texts
}

func (t *cachedTypeOf[T]) removeNamed(names []string, d *parsed[T], b *eventBuilder[T], ts *typeStream) {
	for _, name := range names {
		if has(d.seen, name) || !t.subscribed.covers(name) {
			continue
		}
		if t.records[name] == nil && !has(ts.waiting, name) && !has(t.subscribed.names, name) {
			continue
		}
		t.remove(name, b, ts)
	}
}

// removeMissing removes what a complete response does not hold. A delta server may
// leave out resources whose newest version it knows we hold. If it repeats such
// resources, it does not compare versions.
func (t *cachedTypeOf[T]) removeMissing(d *parsed[T], b *eventBuilder[T], ts *typeStream) {
	for _, name := range slices.Sorted(maps.Keys(t.records)) {
		r := t.records[name]
		switch {
		case has(d.seen, name) || r.absent || !r.held && r.invalid == nil:
		case ts.isDelta() && r.epoch == ts.session.epoch:
		case ts.isDelta() && ts.presented[name] != "" && !d.repeats:
			r.epoch = ts.session.epoch
			delete(ts.waiting, name)
			b.confirmed(name)
		default:
			t.remove(name, b, ts)
		}
	}
}

func (t *cachedTypeOf[T]) remove(name string, b *eventBuilder[T], ts *typeStream) {
	r := t.record(name)
	delete(ts.waiting, name)
	if r.absent {
		return
	}
	b.removed(name)
	t.clear(r)
	t.setUnknown(r, nil)
	r.absent, r.epoch = true, ts.session.epoch
	if !has(t.subscribed.names, name) {
		delete(t.records, name)
	}
}

// maxRejected bounds the resources that one rejection lists.
const maxRejected = 10

// rejection is the error to reject a response with, or nil.
func (d *parsed[T]) rejection() error {
	failed := maps.Clone(d.nameless)
	maps.Copy(failed, d.failed)
	if len(failed) == 0 {
		return nil
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		if len(lines) == maxRejected {
			lines = append(lines, fmt.Sprintf("and %d more", len(failed)-maxRejected))
			break
		}
		lines = append(lines, fmt.Sprintf("%s: %v", brief(name), failed[name]))
	}
	return errors.New(strings.Join(lines, "; "))
}

// brief quotes a name for an error, cut if it is very long.
func brief(name string) string {
	const most = 300
	if len(name) > most {
		return fmt.Sprintf("%q...", name[:most])
	}
	return fmt.Sprintf("%q", name)
}
