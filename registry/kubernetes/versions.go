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

// versions compares what a watch tells of objects with what was read or written of
// them last. So it does not matter which of both is known first.
type versions struct {
	ready chan struct{}

	mu      sync.Mutex
	told    map[ref]version // by the watch; of what is gone, as long as it is known
	known   map[ref]*known  // of the objects that are watched
	changed map[ref]bool    // of known: those that the watch told of since
}

// known is what is known of an object that is watched.
type known struct {
	version

	group   registry.Group
	writing bool // what the watch tells may be ours
}

func newVersions() *versions {
	return &versions{
		ready: make(chan struct{}, 1), told: make(map[ref]version),
		known: make(map[ref]*known), changed: make(map[ref]bool),
	}
}

// enter has the objects of a group watched, of which nothing is known yet.
func (v *versions) enter(group registry.Group) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range refsOf(group) {
		if v.known[r] == nil {
			v.known[r] = &known{version: version{gone: true}}
		}
		v.known[r].group = group
	}
}

// refsOf names what a group is stored as.
func refsOf(group registry.Group) []ref {
	return []ref{{serviceentry.ObjectKind, group.Namespace, group.Name}, {serviceentry.RuleKind, group.Namespace, group.Name}}
}

// leave ends that.
func (v *versions) leave(group registry.Group) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range refsOf(group) {
		delete(v.known, r)
		delete(v.changed, r)
		if v.told[r].gone {
			delete(v.told, r)
		}
	}
}

// saw takes in the version that an object was read or written as.
func (v *versions) saw(r ref, resourceVersion string) {
	v.set(r, version{number: number(resourceVersion, 0)})
}

// none returns what takes in that a reading that begins now found no object.
func (v *versions) none(r ref) func() {
	v.mu.Lock()
	defer v.mu.Unlock()
	told := v.told[r].number // which the reading is not older than
	return func() { v.set(r, version{told, true}) }
}

// sawNone takes in that an object was deleted as it was known.
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

// begin says that an object is about to be written; what it returns, that it was.
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

// tell takes in what the watch tells of an object.
func (v *versions) tell(r ref, now version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note(r, now)
}

// replace takes in all objects of a kind and a namespace as of a version.
func (v *versions) replace(of ref, all map[ref]version, at version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	gone := func(r ref) {
		if _, there := all[r]; !there && r.kind == of.kind && r.namespace == of.namespace {
			v.note(r, version{at.number, true})
		}
	}
	for r := range v.told {
		gone(r)
	}
	for r := range v.known {
		gone(r)
	}
	for r, now := range all {
		v.note(r, now)
	}
}

// note notes what the watch tells. The caller holds mu.
func (v *versions) note(r ref, now version) {
	if now.gone && v.known[r] == nil {
		delete(v.told, r)
		return
	}
	v.told[r] = now
	v.wake(r)
}

// wake makes ready be ready where an object is another than is known. The caller
// holds mu.
func (v *versions) wake(r ref) {
	if k := v.known[r]; k == nil || k.writing || !k.differs(v.told[r]) {
		return
	}
	v.changed[r] = true
	select {
	case v.ready <- struct{}{}:
	default:
	}
}

// differs reports whether what the watch tells is news.
func (k *known) differs(told version) bool {
	return told.number > k.number && (!told.gone || !k.gone)
}

// take returns the groups of what changed, each once until it is read.
func (v *versions) take() (groups []registry.Group) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for r := range v.changed {
		if k := v.known[r]; !k.writing && k.differs(v.told[r]) {
			groups = append(groups, k.group)
			k.version = v.told[r]
		}
	}
	clear(v.changed)
	slices.SortFunc(groups, registry.Group.Compare)
	return slices.Compact(groups)
}

// number reads a resource version; what is none counts as one that is given.
func number(resourceVersion string, otherwise uint64) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// newest is the version of what cannot be compared, so that it is read.
const newest = math.MaxUint64
