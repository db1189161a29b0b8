package dataplane

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// A key identifies a resource of a type. What data planes of one namespace get
// in place of the others' has the namespace.
type key struct{ name, namespace string }

// Of a resource the store holds what is sent, encoded once for all streams. It
// is not written again: a change makes another.
type stored struct {
	key
	exportTo   []string   // namespaces that it is visible in; nil: all
	before     [][]string // what exportTo was earlier
	byNameOnly bool       // it is no part of a wildcard
	revision   uint64     // of the store
	created    uint64     // the revision in which it came
	version    string     // a hash of the content
	sum        uint64     // the same as a number
	wire       *anypb.Any
	delta      *discovery.Resource // the same in the incremental form; nil: it is gone
	localities *localities         // that have others of their own; nil: none
}

// A typed is the resources of one type.
type typed struct {
	url       string
	resources map[key]*stored
	changes   []*stored // by revision; those that another replaced are skipped
	removed   int       // of the resources, how many are gone
	came      uint64    // revision in which one came last
	compacted uint64    // revision up to which removed ones were forgotten
	sum       uint64    // of all sums
	count     int       // of those that are there
}

// sendingOrder has the types in the order in which they are sent: what is
// referred to first.
func sendingOrder() []string {
	return []string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType}
}

// A store holds the resources of all types. Each change of it is a revision, so
// that a stream needs to know no more than up to which one it was sent
// everything.
type store struct {
	mu       sync.RWMutex
	revision uint64 // 0: nothing is to be answered yet
	types    map[string]*typed
	views    map[*view]struct{}
}

func newStore() *store {
	s := &store{types: make(map[string]*typed), views: make(map[*view]struct{})}
	for _, url := range sendingOrder() {
		s.types[url] = &typed{url: url, resources: make(map[key]*stored)}
	}
	return s
}

// An update is what changes in one type. No key is in both.
type update struct {
	put    map[key]*stored
	remove map[key]struct{}
}

// An updates is what changes, by type.
type updates map[string]*update

func newUpdates() updates {
	u := make(updates)
	for _, url := range sendingOrder() {
		u[url] = &update{put: make(map[key]*stored), remove: make(map[key]struct{})}
	}
	return u
}

func (u updates) put(url string, r *stored) {
	u[url].put[r.key] = r
	delete(u[url].remove, r.key)
}

func (u updates) remove(url string, k key) {
	u[url].remove[k] = struct{}{}
	delete(u[url].put, k)
}

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.namespace, b.namespace))
}

// apply makes updates the next revision and wakes the streams, in the order in
// which what they are sent refers to each other.
func (s *store) apply(all updates) {
	s.mu.Lock()
	s.revision++
	for url, u := range all {
		s.types[url].apply(u, s.revision)
	}
	views := make([]*view, 0, len(s.views))
	for v := range s.views {
		views = append(views, v)
	}
	s.mu.Unlock()
	for _, v := range views {
		v.wake()
	}
}

func (t *typed) apply(u *update, revision uint64) {
	for _, k := range slices.SortedFunc(maps.Keys(u.put), compareKeys) {
		r, old := u.put[k], t.resources[k]
		if r.created = revision; old != nil {
			if old.wire != nil && old.version == r.version && isSame(old.exportTo, r.exportTo) {
				continue
			}
			r.before = old.visible(r.exportTo)
			if old.wire != nil {
				r.created = old.created
			}
			t.forget(old)
		}
		if r.created == revision {
			t.came = revision
		}
		t.sum += r.sum
		t.count++
		t.record(r, revision)
	}
	for _, k := range slices.SortedFunc(maps.Keys(u.remove), compareKeys) {
		old := t.resources[k]
		if old == nil || old.wire == nil {
			continue
		}
		t.forget(old)
		t.removed++
		t.record(&stored{key: k, exportTo: []string{}, before: old.visible([]string{}), byNameOnly: old.byNameOnly}, revision)
	}
	t.compact()
}

// visible returns what exportTo was by the time that it becomes another.
func (r *stored) visible(next []string) [][]string {
	if isSame(r.exportTo, next) || slices.ContainsFunc(r.before, func(b []string) bool { return isSame(b, r.exportTo) }) {
		return r.before
	}
	return append(slices.Clone(r.before), r.exportTo)
}

func isSame(a, b []string) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }

// forget takes out a resource that another replaces.
func (t *typed) forget(old *stored) {
	if old.wire == nil {
		t.removed--
		return
	}
	t.sum -= old.sum
	t.count--
}

func (t *typed) record(r *stored, revision uint64) {
	r.revision = revision
	t.resources[r.key] = r
	t.changes = append(t.changes, r)
}

// maxRemoved is how many resources that are gone are remembered. A stream that
// confirmed nothing meanwhile has to start again.
const maxRemoved = 10_000

// compact drops changes that others replaced, and resources that are gone for
// so many changes that no stream waits for them.
func (t *typed) compact() {
	const slack = 1024
	if len(t.changes) <= 2*len(t.resources)+slack && t.removed <= maxRemoved {
		return
	}
	drop := 0
	if t.removed > maxRemoved {
		drop = t.removed / 2 //nolint:mnd // half of them, so that it is not done each time
	}
	t.changes = slices.DeleteFunc(t.changes, func(r *stored) bool {
		if t.resources[r.key] != r {
			return true
		}
		if r.wire != nil || drop == 0 {
			return false
		}
		drop--
		t.removed--
		t.compacted = r.revision
		delete(t.resources, r.key)
		return true
	})
}

// since returns what changed after a revision, each resource once, the earliest
// change first.
func (t *typed) since(revision uint64) func(yield func(*stored) bool) {
	return func(yield func(*stored) bool) {
		i, _ := slices.BinarySearchFunc(t.changes, revision+1, func(r *stored, rev uint64) int { return cmp.Compare(r.revision, rev) })
		for _, r := range t.changes[i:] {
			if t.resources[r.key] == r && !yield(r) {
				return
			}
		}
	}
}

// version returns the version of all resources: the same on every replica, and
// after a restart.
func (t *typed) version() string {
	return strconv.FormatUint(t.sum, 16) + "-" + strconv.Itoa(t.count)
}

// find returns the resource of a name that a namespace sees; nil: there is none,
// as of a type of which nothing is served.
func (t *typed) find(name, namespace string) *stored {
	if t == nil {
		return nil
	}
	r := t.resources[key{name, namespace}]
	if r == nil || r.wire == nil {
		r = t.resources[key{name: name}]
	}
	if r == nil || r.wire == nil || !isVisible(r.exportTo, namespace) {
		return nil
	}
	return r
}

// wasVisible reports whether a namespace saw a resource earlier.
func (r *stored) wasVisible(namespace string) bool {
	if r.namespace != "" {
		return r.namespace == namespace
	}
	return slices.ContainsFunc(r.before, func(to []string) bool { return isVisible(to, namespace) })
}

// worldFor returns a resource for a client's locality, and deltaFor the same in the
// incremental form. Its version is one for all: a client does not move.
func (r *stored) worldFor(locality string) *anypb.Any {
	if r.localities == nil || locality == "" {
		return r.wire
	}
	return r.localities.of(locality)
}

func (r *stored) deltaFor(locality string) *discovery.Resource {
	if r.localities == nil || locality == "" {
		return r.delta
	}
	return &discovery.Resource{Name: r.name, Version: r.version, Resource: r.localities.of(locality)}
}

// newStored returns a resource to be put.
func newStored(name string, wire *anypb.Any) *stored {
	sum := sha256.Sum256(wire.GetValue())
	version := hex.EncodeToString(sum[:8])
	return &stored{
		key: key{name: name}, version: version, sum: binary.BigEndian.Uint64(sum[:8]), wire: wire,
		delta: &discovery.Resource{Name: name, Version: version, Resource: wire},
	}
}
