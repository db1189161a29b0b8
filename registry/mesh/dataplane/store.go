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

// A resourceKey identifies a resource of a type. With a namespace, only data planes of that
// namespace get the resource, instead of the one for all.
type resourceKey struct{ name, namespace string }

// A storedResource is a resource in wire format, encoded once for all streams. It is
// immutable once it is in the store: a change replaces it. A removed resource stays in the
// store without content, so that streams learn of the removal.
type storedResource struct {
	resourceKey
	exportTo       []string   // namespaces in which it is visible; nil: all
	earlierExports [][]string // earlier values of exportTo
	byNameOnly     bool       // a wildcard subscription does not include it

	revision uint64 // of the store, when it was put or removed
	created  uint64 // revision in which it was new

	version string              // hash of the content
	sum     uint64              // version as a number
	wire    *anypb.Any          // nil if it was removed
	delta   *discovery.Resource // wire for the incremental variant

	// localities has the content for each client's locality. If nil, the content is the same
	// for all clients.
	localities *localityAssignments
}

// A typeState has the resources of one type. Guarded by the mu of its store.
type typeState struct {
	url               string
	resources         map[resourceKey]*storedResource
	changes           []*storedResource // by revision; has replaced resources, which are skipped
	removedCount      int               // removed resources in resources
	newestCreated     uint64            // last revision with a new resource
	compactedRevision uint64            // revision up to which removed resources were dropped
	sum               uint64            // sum of storedResource.sum
}

// sendingOrder returns the types in the order in which they are sent: a type comes before
// those that refer to it.
func sendingOrder() []string {
	return []string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType}
}

// A resourceStore has the resources of all types. Each apply is a revision. For a stream it is
// enough to know the revision up to which everything was sent.
//
// A streamView's mu is locked before the store's.
type resourceStore struct {
	// Guarded by mu.
	mu       sync.RWMutex
	revision uint64 // 0 before the first apply: no request is answered yet
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

// resourceUpdates has changed resources by type and key. A nil resource is to be removed.
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

// apply applies updates as the next revision, and wakes the streams.
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

// apply applies the updates of the type, in the order of their keys.
func (t *typeState) apply(update map[resourceKey]*storedResource, revision uint64) {
	for _, k := range slices.SortedFunc(maps.Keys(update), compareKeys) {
		old := t.resources[k]
		if r := update[k]; r != nil {
			t.put(r, old, revision)
		} else if old != nil && old.wire != nil {
			t.uncount(old)
			t.removedCount++
			t.appendChange(&storedResource{
				resourceKey: k, exportTo: []string{}, earlierExports: old.exportsReplacedBy([]string{}), byNameOnly: old.byNameOnly,
			}, revision)
		}
	}
	t.compact()
}

// put puts a resource, unless it is equal to the old one, which may be nil.
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

// exportsReplacedBy returns the earlier values of exportTo after next replaces its value.
func (r *storedResource) exportsReplacedBy(next []string) [][]string {
	isCurrent := func(earlier []string) bool { return sameNamespaces(earlier, r.exportTo) }
	if sameNamespaces(r.exportTo, next) || slices.ContainsFunc(r.earlierExports, isCurrent) {
		return r.earlierExports
	}
	return append(slices.Clone(r.earlierExports), r.exportTo)
}

func sameNamespaces(a, b []string) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }

// uncount takes a resource that is replaced or removed out of the counts.
func (t *typeState) uncount(old *storedResource) {
	if old.wire == nil {
		t.removedCount--
		return
	}
	t.sum -= old.sum
}

// appendChange makes a resource the current one of its key.
func (t *typeState) appendChange(r *storedResource, revision uint64) {
	r.revision = revision
	t.resources[r.resourceKey] = r
	t.changes = append(t.changes, r)
}

// maxRemoved bounds the removed resources in the store. A stream that confirmed nothing while
// more were removed has to be opened again.
const maxRemoved = 10_000

// compact drops replaced resources and, if there are too many, the oldest removed ones.
func (t *typeState) compact() {
	const slack = 1024
	if len(t.changes) <= 2*len(t.resources)+slack && t.removedCount <= maxRemoved {
		return
	}
	drop := 0
	if t.removedCount > maxRemoved {
		drop = t.removedCount / 2 //nolint:mnd // half, so that this is rare
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

// changesSince yields the current resources that changed after a revision, in the order of
// the changes. Removed resources are among them.
func (t *typeState) changesSince(revision uint64) func(yield func(*storedResource) bool) {
	return func(yield func(*storedResource) bool) {
		byRevision := func(r *storedResource, revision uint64) int { return cmp.Compare(r.revision, revision) }
		i, _ := slices.BinarySearchFunc(t.changes, revision+1, byRevision)
		for _, r := range t.changes[i:] {
			if t.resources[r.resourceKey] == r && !yield(r) {
				return
			}
		}
	}
}

// liveCount returns how many resources are not removed.
func (t *typeState) liveCount() int { return len(t.resources) - t.removedCount }

// version returns the version of the set of resources. The same set has the same version on
// every replica and after a restart.
func (t *typeState) version() string {
	return SetVersion(t.sum, t.liveCount())
}

// findVisible returns the resource of a name that a namespace sees, or nil if there is none.
// t is nil for a type that is not served.
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

// wasVisible reports whether a namespace saw an earlier version of the resource.
func (r *storedResource) wasVisible(namespace string) bool {
	if r.namespace != "" {
		return r.namespace == namespace
	}
	return slices.ContainsFunc(r.earlierExports, func(to []string) bool { return isVisible(to, namespace) })
}

// sotwFor returns the resource for a client in a locality. The version is the same for all
// localities, because a client does not move.
func (r *storedResource) sotwFor(locality string) *anypb.Any {
	if r.localities == nil || locality == "" {
		return r.wire
	}
	return r.localities.assignmentFor(locality)
}

// deltaFor is sotwFor in the incremental variant.
func (r *storedResource) deltaFor(locality string) *discovery.Resource {
	if r.localities == nil || locality == "" {
		return r.delta
	}
	return &discovery.Resource{Name: r.name, Version: r.version, Resource: r.localities.assignmentFor(locality)}
}

// VersionOf returns the version of a resource, which is a hash of its content: as a text and
// as a number.
func VersionOf(content []byte) (version string, sum uint64) {
	hash := sha256.Sum256(content)
	return hex.EncodeToString(hash[:8]), binary.BigEndian.Uint64(hash[:8])
}

// SetVersion returns the version of a set of resources, by the sum of their hashes and their
// number.
func SetVersion(sum uint64, count int) string {
	return strconv.FormatUint(sum, 16) + "-" + strconv.Itoa(count)
}

// newStoredResource returns a resource with its version. It is visible in all namespaces.
func newStoredResource(name string, wire *anypb.Any) *storedResource {
	version, sum := VersionOf(wire.GetValue())
	return &storedResource{
		resourceKey: resourceKey{name: name}, version: version, sum: sum, wire: wire,
		delta: &discovery.Resource{Name: name, Version: version, Resource: wire},
	}
}
