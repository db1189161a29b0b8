package ads

import (
	"cmp"
	"errors"
	"hash/maphash"
	"maps"
	"slices"
)

// cachedType is one resource type with what is known of it, whatever its resources
// are in Go. Only Run's goroutine touches it.
type cachedType interface {
	// apply applies a response and tells the subscribers. The error is what to
	// reject the response with; what was valid in it is applied all the same.
	apply(r response, f rawResponse) error
	// timeout reports names that were asked for and not answered.
	timeOut(names []string, f rawResponse)
	// lost reports a connection that failed, or a stream that ended.
	lost(err error, l loss)
	// versions returns the held resources and their versions, at most limit
	// bytes of names.
	versions(limit int) map[string]string
}

// loss is what became of a connection.
type loss int

const (
	notConnected loss = iota // it failed before it delivered anything
	streamEnded              // the stream delivered, and broke
)

// typeState is a type in both its forms.
type typeState struct {
	interest *interest
	cached   cachedType
}

// rawResponse is where a response or an expiry is in its stream.
type rawResponse struct {
	epoch     int
	delta     bool
	first     bool // first response of this type on this stream
	silent    bool // no response of this type on this stream yet
	wildcard  bool // the server knows that we want everything
	late      bool // it learned so after other names: its answer cannot be distinguished from others
	answered  bool // it has sent something since
	presented map[string]string
	version   string              // state of the world: version the server was told we hold
	waiting   map[string]struct{} // names without an answer
}

// resync says that removals are found by comparison with an earlier stream.
func (f rawResponse) resync() bool { return f.first && f.epoch > 1 }

// digest tells the bytes of one resource from those of another, so that they
// need not be kept. It is of this process only.
type digest [2]uint64

// hasher makes digests. Its seeds are secret, so that nobody can make two
// resources that have the same.
type hasher [2]maphash.Seed

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

func (h hasher) sum(data []byte) digest {
	return digest{maphash.Bytes(h[0], data), maphash.Bytes(h[1], data)}
}

// cachedTypeOf is a cached type whose resources are read as T.
type cachedTypeOf[T any] struct {
	kind     Kind[T]
	ledger   *interest
	epoch    *int // of the stream that delivers now
	link     *int // number of its connection
	records  map[string]*record[T]
	hasher   hasher
	sums     map[digest]string // names of held resources that came without an envelope
	nameless map[string]string // errors without a name told last
	complete int               // epoch in which the whole set was told

	all   map[*Subscription[T]]struct{}
	named map[string][]*Subscription[T]
}

// record is what is known of one name.
type record[T any] struct {
	held    bool
	absent  bool // the server said that there is none
	value   T
	version string
	sum     digest
	epoch   int   // last told in
	unknown error // asked for and not answered since
	invalid error // what was wrong with the newest
}

func newCachedType[T any](k Kind[T], l *interest, epoch, link *int) *cachedTypeOf[T] {
	t := &cachedTypeOf[T]{
		kind: k, ledger: l, epoch: epoch, link: link,
		records: map[string]*record[T]{}, hasher: newHasher(), sums: map[digest]string{}, nameless: map[string]string{},
		all: map[*Subscription[T]]struct{}{}, named: map[string][]*Subscription[T]{},
	}
	l.release = t.release
	return t
}

// release forgets a name that nobody wants, unless the wildcard covers it.
func (t *cachedTypeOf[T]) release(name string) {
	if name == Wildcard {
		t.complete = 0
	}
	if r := t.records[name]; r == nil || t.ledger.want[Wildcard] > 0 && r.held {
		return
	}
	t.forget(name)
}

func (t *cachedTypeOf[T]) record(name string) *record[T] {
	r := t.records[name]
	if r == nil {
		r = &record[T]{}
		t.records[name] = r
	}
	return r
}

// forget drops what is known of a name.
func (t *cachedTypeOf[T]) forget(name string) {
	if r := t.records[name]; r != nil {
		t.unhold(r)
		t.setUnknown(r, nil)
		delete(t.records, name)
	}
}

func (t *cachedTypeOf[T]) unhold(r *record[T]) {
	if r.held {
		delete(t.sums, r.sum)
		t.ledger.held--
	}
	var none T
	r.held, r.value, r.version, r.sum, r.invalid = false, none, "", digest{}, nil
}

func (t *cachedTypeOf[T]) setUnknown(r *record[T], err error) {
	if (r.unknown == nil) != (err == nil) {
		if err == nil {
			t.ledger.unknown--
		} else {
			t.ledger.unknown++
		}
	}
	r.unknown = err
}

func (t *cachedTypeOf[T]) versions(limit int) map[string]string {
	versions := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(t.records)) {
		r := t.records[name]
		if !r.held {
			continue
		}
		if limit -= len(name) + len(r.version) + framing; limit < 0 {
			break
		}
		versions[name] = r.version
	}
	return versions
}

func (t *cachedTypeOf[T]) lost(err error, l loss) {
	n := t.newEvents(*t.epoch)
	for _, s := range t.subscribers() {
		if l == streamEnded {
			n.event(s).Ended = err
		} else {
			n.event(s).Disconnected = err
		}
	}
	n.deliver()
}

// subscribers returns every subscription, in the order they were made.
func (t *cachedTypeOf[T]) subscribers() []*Subscription[T] {
	set := maps.Clone(t.all)
	for _, subs := range t.named {
		for _, s := range subs {
			set[s] = struct{}{}
		}
	}
	return slices.SortedFunc(maps.Keys(set), byAge)
}

func byAge[T any](a, b *Subscription[T]) int { return cmp.Compare(a.id, b.id) }

// errSilent is what an Unknown name is told with.
var errSilent = errors.New("ads: asked for, and not answered")

func (t *cachedTypeOf[T]) timeOut(names []string, f rawResponse) {
	n := t.newEvents(f.epoch)
	for _, name := range names {
		if name == Wildcard {
			t.timeOutAll(n, f)
			continue
		}
		r := t.record(name)
		switch {
		case r.absent || r.held && r.epoch == f.epoch:
		case r.held && f.current(name):
			r.epoch = f.epoch
			n.confirmed(name)
		default:
			if !r.held {
				r.epoch = f.epoch
			}
			t.setUnknown(r, errSilent)
			n.unknown(name, errSilent)
		}
	}
	n.deliver()
}

// timeOutAll judges a wildcard whose time is up: what was answered late is whole
// by now, and silence means that all is as it was, or nothing.
func (t *cachedTypeOf[T]) timeOutAll(n *eventBuilder[T], f rawResponse) {
	if f.late && f.answered {
		t.finish(n, f)
		return
	}
	var confirmed []string
	current := true
	for name, r := range t.records {
		if r.held {
			current = current && f.current(name)
			confirmed = append(confirmed, name)
		}
	}
	if !current || len(confirmed) == 0 {
		t.setUnknown(t.record(Wildcard), errSilent)
		n.unknown(Wildcard, errSilent)
		return
	}
	for _, name := range confirmed {
		t.records[name].epoch = f.epoch
		n.confirmed(name)
	}
	t.finish(n, f)
}

// current says that silence about a held resource means that it is as it was:
// the server was told which version we hold and had nothing to add. A server
// that gives no versions (istiod) cannot mean that.
func (f rawResponse) current(name string) bool {
	if f.delta {
		return f.presented[name] != ""
	}
	return f.version != "" && f.silent
}

// finish marks the whole set as told in this epoch.
func (t *cachedTypeOf[T]) finish(n *eventBuilder[T], f rawResponse) {
	if t.complete != f.epoch {
		t.complete = f.epoch
		n.complete()
	}
}
