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

// A resourceKey identifies a resource of a type. It has a namespace if data planes of that
// namespace get the resource in place of the one for all.
type resourceKey struct{ name, namespace string }

// A storedResource is a resource in wire format, encoded once for all streams. It is
// never written again: a change replaces it.
type storedResource struct {
	resourceKey
	exportTo       []string   // namespaces in which it is visible; nil: all
	earlierExports [][]string // earlier values of exportTo
	byNameOnly     bool       // it is not part of a wildcard
	revision       uint64     // of the store
	created        uint64     // the revision in which it was new
	version        string     // a hash of the content
	sum            uint64     // the same as a number
	wire           *anypb.Any
	delta          *discovery.Resource  // in the incremental form; nil: it is gone
	localities     *localityAssignments // nil: it is the same for all clients
}

// A typeState is the resources of one type.
type typeState struct {
	url               string
	resources         map[resourceKey]*storedResource
	changes           []*storedResource // by revision; replaced ones are skipped
	removedCount      int               // resources that are gone
	newestCreated     uint64            // last revision with a new resource
	compactedRevision uint64            // revision up to which removed ones were forgotten
	sum               uint64            // of all sums
}

// sendingOrder returns the types in the order in which they are sent: referenced ones
// first.
func sendingOrder() []string {
	return []string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType}
}

// A resourceStore holds the resources of all types. Each change is a revision: of a stream
// only the revision is kept up to which it was sent everything.
type resourceStore struct {
	mu       sync.RWMutex
	revision uint64 // 0: nothing is answered yet
	types    map[string]*typeState
	views    map[*streamView]struct{}
}

func newResourceStore() *resourceStore {
	s := &resourceStore{types: make(map[string]*typeState), views: make(map[*streamView]struct{})}
	for _, url := range sendingOrder() {
		s.types[url] = &typeState{url: url, resources: make(map[resourceKey]*storedResource)}
	}
	return s
}

// resourceUpdates is the changed resources, by type; nil: to be removed.
type resourceUpdates map[string]map[resourceKey]*storedResource

func newResourceUpdates() resourceUpdates {
	u := make(resourceUpdates)
	for _, url := range sendingOrder() {
		u[url] = make(map[resourceKey]*storedResource)
	}
	return u
}

func compareKeys(a, b resourceKey) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.namespace, b.namespace))
}

// apply makes updates the next revision and wakes the streams.
func (s *resourceStore) apply(all resourceUpdates) {
	s.mu.Lock()
	s.revision++
	for url, u := range all {
		s.types[url].apply(u, s.revision)
	}
	views := make([]*streamView, 0, len(s.views))
	for v := range s.views {
		views = append(views, v)
	}
	s.mu.Unlock()
	for _, v := range views {
		v.wake()
	}
}

func (t *typeState) apply(update map[resourceKey]*storedResource, revision uint64) {
	for _, k := range slices.SortedFunc(maps.Keys(update), compareKeys) {
		old := t.resources[k]
		if r := update[k]; r != nil {
			t.put(r, old, revision)
		} else if old != nil && old.wire != nil {
			t.uncount(old)
			t.removedCount++
			t.appendChange(&storedResource{resourceKey: k, exportTo: []string{}, earlierExports: old.exportsReplacedBy([]string{}), byNameOnly: old.byNameOnly}, revision)
		}
	}
	t.compact()
}

func (t *typeState) put(r, old *storedResource, revision uint64) {
	if r.created = revision; old != nil {
		if old.wire != nil && old.version == r.version && sameNamespaces(old.exportTo, r.exportTo) {
			return
		}
		r.earlierExports = old.exportsReplacedBy(r.exportTo)
		if old.wire != nil {
			r.created = old.created
		}
		t.uncount(old)
	}
	if r.created == revision {
		t.newestCreated = revision
	}
	t.sum += r.sum
	t.appendChange(r, revision)
}

// exportsReplacedBy returns the earlier values of exportTo once it is replaced by next.
func (r *storedResource) exportsReplacedBy(next []string) [][]string {
	if sameNamespaces(r.exportTo, next) || slices.ContainsFunc(r.earlierExports, func(b []string) bool { return sameNamespaces(b, r.exportTo) }) {
		return r.earlierExports
	}
	return append(slices.Clone(r.earlierExports), r.exportTo)
}

func sameNamespaces(a, b []string) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }

// uncount uncounts a resource that is replaced.
func (t *typeState) uncount(old *storedResource) {
	if old.wire == nil {
		t.removedCount--
		return
	}
	t.sum -= old.sum
}

func (t *typeState) appendChange(r *storedResource, revision uint64) {
	r.revision = revision
	t.resources[r.resourceKey] = r
	t.changes = append(t.changes, r)
}

// maxRemoved bounds the resources that are gone. A stream that confirmed nothing
// while more of them went has to start again.
const maxRemoved = 10_000

// compact drops replaced changes, and the oldest resources that are gone.
func (t *typeState) compact() {
	const slack = 1024
	if len(t.changes) <= 2*len(t.resources)+slack && t.removedCount <= maxRemoved {
		return
	}
	drop := 0
	if t.removedCount > maxRemoved {
		drop = t.removedCount / 2 //nolint:mnd // half of them, to do it seldom
	}
	t.changes = slices.DeleteFunc(t.changes, func(r *storedResource) bool {
		if t.resources[r.resourceKey] != r {
			return true
		}
		if r.wire != nil || drop == 0 {
			return false
		}
		drop--
		t.removedCount--
		t.compactedRevision = r.revision
		delete(t.resources, r.resourceKey)
		return true
	})
}

// changesSince returns what changed after a revision, each resource once, in the order of
// the changes.
func (t *typeState) changesSince(revision uint64) func(yield func(*storedResource) bool) {
	return func(yield func(*storedResource) bool) {
		i, _ := slices.BinarySearchFunc(t.changes, revision+1, func(r *storedResource, rev uint64) int { return cmp.Compare(r.revision, rev) })
		for _, r := range t.changes[i:] {
			if t.resources[r.resourceKey] == r && !yield(r) {
				return
			}
		}
	}
}

// liveCount returns how many resources are not gone.
func (t *typeState) liveCount() int { return len(t.resources) - t.removedCount }

// version returns the version of all resources. It is the same on every replica and
// after a restart.
func (t *typeState) version() string {
	return SetVersion(t.sum, t.liveCount())
}

// findVisible returns the resource of a name that a namespace sees; nil: there is none, or
// nothing of the type is served.
func (t *typeState) findVisible(name, namespace string) *storedResource {
	if t == nil {
		return nil
	}
	r := t.resources[resourceKey{name, namespace}]
	if r == nil || r.wire == nil {
		r = t.resources[resourceKey{name: name}]
	}
	if r == nil || r.wire == nil || !isVisible(r.exportTo, namespace) {
		return nil
	}
	return r
}

// wasVisible reports whether a namespace saw a resource earlier.
func (r *storedResource) wasVisible(namespace string) bool {
	if r.namespace != "" {
		return r.namespace == namespace
	}
	return slices.ContainsFunc(r.earlierExports, func(to []string) bool { return isVisible(to, namespace) })
}

// sotwFor returns a resource for a client's locality, and deltaFor the same in the
// incremental form. The version is the same for all: a client does not move.
func (r *storedResource) sotwFor(locality string) *anypb.Any {
	if r.localities == nil || locality == "" {
		return r.wire
	}
	return r.localities.assignmentFor(locality)
}

func (r *storedResource) deltaFor(locality string) *discovery.Resource {
	if r.localities == nil || locality == "" {
		return r.delta
	}
	return &discovery.Resource{Name: r.name, Version: r.version, Resource: r.localities.assignmentFor(locality)}
}

// VersionOf returns the version of a resource, a hash of its content as text and as a
// number.
func VersionOf(content []byte) (version string, sum uint64) {
	hash := sha256.Sum256(content)
	return hex.EncodeToString(hash[:8]), binary.BigEndian.Uint64(hash[:8])
}

// SetVersion returns the version of so many resources, by the sum of their hashes.
func SetVersion(sum uint64, count int) string {
	return strconv.FormatUint(sum, 16) + "-" + strconv.Itoa(count)
}

// newStoredResource returns a resource to be put.
func newStoredResource(name string, wire *anypb.Any) *storedResource {
	version, sum := VersionOf(wire.GetValue())
	return &storedResource{
		resourceKey: resourceKey{name: name}, version: version, sum: sum, wire: wire,
		delta: &discovery.Resource{Name: name, Version: version, Resource: wire},
	}
}
