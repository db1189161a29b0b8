package kubernetes

import (
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A version is an object as one change left it. Resource versions of one kind of
// object are numbers that grow with each change:
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
type version struct {
	number uint64
	gone   bool
}

// versions compares what a watch observes of objects with what was read or written of
// them last. The order of the two does not matter.
type versions struct {
	ready chan struct{}

	mu       sync.Mutex
	observed map[ref]version      // by the watch; of deleted objects, while they are known
	known    map[ref]*knownObject // of the objects that are watched
	changed  map[ref]bool         // of known: those that the watch observed since
}

// A knownObject is what was read or written last of an object that is watched.
type knownObject struct {
	version

	group   registry.Group
	writing bool // what the watch observes may be our write
}

func newVersions() *versions {
	return &versions{
		ready: make(chan struct{}, 1), observed: make(map[ref]version),
		known: make(map[ref]*knownObject), changed: make(map[ref]bool),
	}
}

// add adds the objects of a group, before they are read.
func (v *versions) add(group registry.Group) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range refsOf(group) {
		if v.known[r] == nil {
			v.known[r] = &knownObject{version: version{gone: true}}
		}
		v.known[r].group = group
	}
}

func refsOf(group registry.Group) []ref {
	return []ref{{serviceentry.ObjectKind, group.Namespace, group.Name}, {serviceentry.RuleKind, group.Namespace, group.Name}}
}

func (v *versions) remove(group registry.Group) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range refsOf(group) {
		delete(v.known, r)
		delete(v.changed, r)
		if v.observed[r].gone {
			delete(v.observed, r)
		}
	}
}

// saw records the version that an object was read or written as.
func (v *versions) saw(r ref, resourceVersion string) {
	v.set(r, version{number: number(resourceVersion, 0)})
}

// none returns a function to record that a read that begins now found no object.
func (v *versions) none(r ref) func() {
	v.mu.Lock()
	defer v.mu.Unlock()
	oldest := v.observed[r].number // the read is not older
	return func() { v.set(r, version{oldest, true}) }
}

// sawNone records that an object was deleted as it was known.
func (v *versions) sawNone(r ref) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.known[r]; k != nil {
		k.gone = true
	}
}

func (v *versions) set(r ref, now version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.known[r]; k != nil {
		k.version = now
	}
}

// begin records that an object is about to be written. The caller calls end after
// that.
func (v *versions) begin(r ref) (end func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.known[r]
	if k == nil {
		return func() {}
	}
	k.writing = true
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		k.writing = false
		v.wake(r)
	}
}

func (v *versions) observe(r ref, now version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.record(r, now)
}

// replace records all objects of a kind and a namespace as of a version.
func (v *versions) replace(of ref, all map[ref]version, at version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	gone := func(r ref) {
		if _, there := all[r]; !there && r.kind == of.kind && r.namespace == of.namespace {
			v.record(r, version{at.number, true})
		}
	}
	for r := range v.observed {
		gone(r)
	}
	for r := range v.known {
		gone(r)
	}
	for r, now := range all {
		v.record(r, now)
	}
}

// record records what the watch reports. The caller holds mu.
func (v *versions) record(r ref, now version) {
	if now.gone && v.known[r] == nil {
		delete(v.observed, r)
		return
	}
	v.observed[r] = now
	v.wake(r)
}

// wake makes ready ready if an object is another than the known one. The caller holds
// mu.
func (v *versions) wake(r ref) {
	if k := v.known[r]; k == nil || k.writing || !k.differs(v.observed[r]) {
		return
	}
	v.changed[r] = true
	select {
	case v.ready <- struct{}{}:
	default:
	}
}

// differs reports whether an observed version is news.
func (k *knownObject) differs(observed version) bool {
	return observed.number > k.number && (!observed.gone || !k.gone)
}

// drain returns the groups that changed, each once until it is read.
func (v *versions) drain() (groups []registry.Group) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for r := range v.changed {
		if k := v.known[r]; !k.writing && k.differs(v.observed[r]) {
			groups = append(groups, k.group)
			k.version = v.observed[r]
		}
	}
	clear(v.changed)
	slices.SortFunc(groups, registry.Group.Compare)
	return slices.Compact(groups)
}

// number parses a resource version. An invalid one counts as the given number.
func number(resourceVersion string, otherwise uint64) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// newest is the version of objects without a number, so that they are read.
const newest = math.MaxUint64
