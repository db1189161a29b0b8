package kubernetes

import (
	"math"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/types"

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
	told    map[types.NamespacedName]version // by the watch; of what is gone, as long as it is known
	known   map[types.NamespacedName]*known  // of the objects that are watched
	changed map[types.NamespacedName]bool    // of known: those that the watch told of since
}

// known is what is known of an object that is watched.
type known struct {
	version

	group   registry.Group
	writing bool // what the watch tells may be ours
}

func newVersions() *versions {
	return &versions{
		ready: make(chan struct{}, 1), told: make(map[types.NamespacedName]version),
		known: make(map[types.NamespacedName]*known), changed: make(map[types.NamespacedName]bool),
	}
}

// enter has the object of a group watched, of which nothing is known yet.
func (v *versions) enter(group registry.Group) {
	name := types.NamespacedName{Namespace: group.Namespace, Name: group.Name}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known[name] == nil {
		v.known[name] = &known{version: version{gone: true}}
	}
	v.known[name].group = group
}

// leave ends that.
func (v *versions) leave(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.known, name)
	delete(v.changed, name)
	if v.told[name].gone {
		delete(v.told, name)
	}
}

// saw takes in the version that an object was read or written as.
func (v *versions) saw(name types.NamespacedName, resourceVersion string) {
	v.set(name, version{number: number(resourceVersion, 0)})
}

// none returns what takes in that a reading that begins now found no object.
func (v *versions) none(name types.NamespacedName) func() {
	v.mu.Lock()
	defer v.mu.Unlock()
	told := v.told[name].number // which the reading is not older than
	return func() { v.set(name, version{told, true}) }
}

// sawNone takes in that an object was deleted as it was known.
func (v *versions) sawNone(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.known[name]; k != nil {
		k.gone = true
	}
}

func (v *versions) set(name types.NamespacedName, now version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.known[name]; k != nil {
		k.version = now
	}
}

// begin says that an object is about to be written; what it returns, that it was.
func (v *versions) begin(name types.NamespacedName) (end func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.known[name]
	if k == nil {
		return func() {}
	}
	k.writing = true
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		k.writing = false
		v.wake(name)
	}
}

// tell takes in what the watch tells of an object.
func (v *versions) tell(name types.NamespacedName, now version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note(name, now)
}

// replace takes in all objects of a namespace as of a version.
func (v *versions) replace(all map[types.NamespacedName]version, at version) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name := range v.told {
		if _, there := all[name]; !there {
			v.note(name, version{at.number, true})
		}
	}
	for name := range v.known {
		if _, there := all[name]; !there {
			v.note(name, version{at.number, true})
		}
	}
	for name, now := range all {
		v.note(name, now)
	}
}

// note notes what the watch tells. The caller holds mu.
func (v *versions) note(name types.NamespacedName, now version) {
	if now.gone && v.known[name] == nil {
		delete(v.told, name)
		return
	}
	v.told[name] = now
	v.wake(name)
}

// wake makes ready be ready where an object is another than is known. The caller
// holds mu.
func (v *versions) wake(name types.NamespacedName) {
	if k := v.known[name]; k == nil || k.writing || !k.differs(v.told[name]) {
		return
	}
	v.changed[name] = true
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
	for name := range v.changed {
		if k := v.known[name]; !k.writing && k.differs(v.told[name]) {
			groups = append(groups, k.group)
			k.version = v.told[name]
		}
	}
	clear(v.changed)
	slices.SortFunc(groups, registry.Group.Compare)
	return groups
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
