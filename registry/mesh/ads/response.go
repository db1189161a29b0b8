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

// maxNackLines bounds what one rejection tells the server, in resources.
const maxNackLines = 10

// payload is one resource of a response, read.
type payload[T any] struct {
	name  string
	raw   raw
	sum   digest
	same  bool // bytes are those held under name
	value T
	err   error
}

// decoded is a response, read and sorted out.
type decoded[T any] struct {
	payloads []payload[T] // wanted, one per name
	seen     map[string]struct{}
	failed   map[string]error // by name
	nameless map[string]error // by place in the response
	repeats  bool             // a resource came again in the version the server was told
}

func (t *cachedTypeOf[T]) apply(r response, f rawResponse) error {
	d := t.open(r, f)
	n := t.newEvents(f.epoch)
	n.resync = f.resync()
	for i := range d.payloads {
		t.keep(&d.payloads[i], n, f)
	}
	t.reportInvalid(&d, n, f)
	t.removeNamed(r.removed, &d, n, f)
	if t.whole(f) && len(d.nameless) == 0 {
		t.removeRest(&d, n, f)
		if f.wildcard && !f.late {
			t.finish(n, f)
		}
	}
	if !f.late {
		delete(f.waiting, Wildcard)
	}
	t.forget(Wildcard) // which could only be known as unknown
	n.deliver()
	return d.nackDetail()
}

// whole says whether a response holds all there is, so that absence means gone.
func (t *cachedTypeOf[T]) whole(f rawResponse) bool {
	if f.delta {
		return f.first && f.wildcard && !f.late
	}
	return t.kind.Full
}

// open reads a response. What was not asked for is left out; a name that stands
// twice is a fault, since either could be meant.
func (t *cachedTypeOf[T]) open(r response, f rawResponse) decoded[T] {
	all := t.readAll(r.resources)
	d := decoded[T]{
		payloads: all[:0], seen: make(map[string]struct{}, len(all)),
		failed: map[string]error{}, nameless: map[string]error{},
	}
	twice := map[string]struct{}{}
	for i, p := range all {
		if p.name == Wildcard {
			p.name, p.err = "", errors.New("named *, which stands for everything")
		}
		if p.name == "" && p.err != nil {
			d.nameless[fmt.Sprintf("resource[%d]", i)] = p.err
			continue
		}
		if !t.ledger.wants(p.name) {
			continue
		}
		if _, ok := d.seen[p.name]; ok {
			twice[p.name] = struct{}{}
			continue
		}
		d.seen[p.name] = struct{}{}
		d.repeats = d.repeats || p.raw.version != "" && f.presented[p.name] == p.raw.version
		switch {
		case p.err != nil:
			d.failed[p.name] = p.err
		case !p.raw.beat:
			d.payloads = append(d.payloads, p)
		}
	}
	for name := range twice {
		d.failed[name] = errors.New("duplicate: the name stands more than once in one response")
	}
	d.payloads = slices.DeleteFunc(d.payloads, func(p payload[T]) bool { return d.failed[p.name] != nil })
	return d
}

// readByOne is how many resources are worth a goroutine.
const readByOne = 32

// readAll reads resources, many of them on all processors: what is known
// changes only after that. It returns when all is done.
func (t *cachedTypeOf[T]) readAll(resources []raw) []payload[T] {
	parcels := make([]payload[T], len(resources))
	var next atomic.Int64
	work := func() {
		for {
			to := int(next.Add(readByOne))
			from := to - readByOne
			if from >= len(resources) {
				return
			}
			for i := from; i < min(to, len(resources)); i++ {
				parcels[i] = t.read(resources[i])
			}
		}
	}
	var others sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (len(resources)+readByOne-1)/readByOne) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
	return parcels
}

// read reads one resource, decoding it only if its bytes are new.
func (t *cachedTypeOf[T]) read(r raw) payload[T] {
	p := payload[T]{name: r.name, raw: r, err: r.err}
	if r.err != nil || r.beat {
		return p
	}
	p.sum = t.hasher.sum(r.data)
	if !r.named {
		p.name = t.sums[p.sum]
	}
	if p.same = t.holds(p.name, p.sum); p.same {
		return p
	}
	var name string
	name, p.value, p.err = t.decode(r.data)
	switch {
	case !r.named:
		p.name = name
		p.same = p.err == nil && t.holds(name, p.sum)
	case p.err == nil && name != r.name:
		p.err = fmt.Errorf("envelope names it %s, the resource itself %s", brief(r.name), brief(name))
	}
	return p
}

// holds reports whether exactly these bytes are held under a name.
func (t *cachedTypeOf[T]) holds(name string, sum digest) bool {
	r := t.records[name]
	return r != nil && r.held && r.sum == sum
}

// decode calls the subscriber's Decode, whose panic costs one resource and not
// the process: its input comes from outside.
func (t *cachedTypeOf[T]) decode(data []byte) (name string, value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoder panicked: %v", p)
		}
	}()
	return t.kind.Decode(data)
}

// keep applies one valid resource.
func (t *cachedTypeOf[T]) keep(p *payload[T], n *eventBuilder[T], f rawResponse) {
	r := t.record(p.name)
	news := !p.same || !r.held || r.invalid != nil
	late := r.epoch != f.epoch || r.unknown != nil
	if !p.same {
		t.unhold(r)
		r.held, r.value, r.sum = true, p.value, p.sum
		t.ledger.held++
	}
	if !p.raw.named {
		t.sums[p.sum] = p.name
	}
	r.version, r.absent, r.invalid, r.epoch = p.raw.version, false, nil, f.epoch
	t.setUnknown(r, nil)
	delete(f.waiting, p.name)
	switch {
	case news:
		n.changed(p.name, r)
	case late:
		n.confirmed(p.name)
	}
}

// reportInvalid reports what could not be read, once for each error.
func (t *cachedTypeOf[T]) reportInvalid(d *decoded[T], n *eventBuilder[T], f rawResponse) {
	for name, err := range d.failed {
		r := t.record(name)
		if r.invalid == nil || r.invalid.Error() != err.Error() {
			n.invalid(name, err)
		}
		r.invalid, r.absent, r.epoch = err, false, f.epoch
		t.setUnknown(r, nil)
		delete(f.waiting, name)
	}
	texts := make(map[string]string, len(d.nameless))
	for place, err := range d.nameless {
		texts[place] = err.Error()
		if t.nameless[place] != texts[place] {
			n.nameless(place, err)
		}
	}
	t.nameless = texts
}

// removeNamed applies what a delta response says is not there.
func (t *cachedTypeOf[T]) removeNamed(names []string, d *decoded[T], n *eventBuilder[T], f rawResponse) {
	for _, name := range names {
		if _, ok := d.seen[name]; ok || !t.ledger.wants(name) {
			continue
		}
		_, waiting := f.waiting[name]
		r := t.records[name]
		if r == nil && !waiting && t.ledger.want[name] == 0 {
			continue
		}
		t.remove(name, n, f)
	}
}

// removeRest applies what a whole response does not hold. In a delta stream the
// server may leave out what we told it that we hold in its newest version; one
// that repeats such resources does not look at versions.
func (t *cachedTypeOf[T]) removeRest(d *decoded[T], n *eventBuilder[T], f rawResponse) {
	for _, name := range slices.Sorted(maps.Keys(t.records)) {
		r := t.records[name]
		_, seen := d.seen[name]
		switch {
		case seen || r.absent || !r.held && r.invalid == nil:
		case f.delta && r.epoch == f.epoch:
		case f.delta && f.presented[name] != "" && !d.repeats:
			r.epoch = f.epoch
			delete(f.waiting, name)
			n.confirmed(name)
		default:
			t.remove(name, n, f)
		}
	}
}

// remove notes that there is no such resource.
func (t *cachedTypeOf[T]) remove(name string, n *eventBuilder[T], f rawResponse) {
	r := t.record(name)
	delete(f.waiting, name)
	if r.absent {
		return
	}
	n.removed(name)
	t.unhold(r)
	t.setUnknown(r, nil)
	r.absent, r.epoch = true, f.epoch
	if t.ledger.want[name] == 0 {
		delete(t.records, name)
	}
}

// nackDetail is what the server is told about a response, or nil.
func (d *decoded[T]) nackDetail() error {
	failed := maps.Clone(d.nameless)
	maps.Copy(failed, d.failed)
	if len(failed) == 0 {
		return nil
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		if len(lines) == maxNackLines {
			lines = append(lines, fmt.Sprintf("and %d more", len(failed)-maxNackLines))
			break
		}
		lines = append(lines, fmt.Sprintf("%s: %v", brief(name), failed[name]))
	}
	return errors.New(strings.Join(lines, "; "))
}

// brief quotes a name for an error, cut where it is absurdly long.
func brief(name string) string {
	const most = 300
	if len(name) > most {
		return fmt.Sprintf("%q...", name[:most])
	}
	return fmt.Sprintf("%q", name)
}
