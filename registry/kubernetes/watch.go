package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A WatchedTarget is a Target over the Kubernetes API. While Run runs, it watches what other
// writers change in its namespace.
type WatchedTarget struct {
	*Target

	api *API // immutable

	// Guarded by mu.
	mu          sync.Mutex
	watchStates map[string]State // by kind of object
}

// NewWatchedTarget returns a target over an API, which no other target may use.
func NewWatchedTarget(api *API, o Options) *WatchedTarget {
	return &WatchedTarget{Target: NewTarget(api, o), api: api, watchStates: make(map[string]State)}
}

// Capabilities implements registry.Target.
func (t *WatchedTarget) Capabilities() registry.Capabilities {
	c := t.Target.Capabilities()
	c.Watcher = t
	return c
}

// Read implements registry.Target.
func (t *WatchedTarget) Read(ctx context.Context, group registry.Group) ([]registry.Stored, error) {
	for _, v := range t.api.versions {
		v.removeGroup(group.Name)
	}
	return t.Target.Read(ctx, group)
}

// Watch implements registry.Watcher.
func (t *WatchedTarget) Watch(ctx context.Context, group registry.Group) ([]registry.Stored, error) {
	for _, v := range t.api.versions {
		v.addGroup(group)
	}
	return t.Target.Read(ctx, group)
}

// Changed implements registry.Watcher.
func (t *WatchedTarget) Changed() <-chan struct{} { return t.api.changed }

// Changes implements registry.Watcher.
func (t *WatchedTarget) Changes() (groups []registry.Group) {
	for _, v := range t.api.versions {
		groups = append(groups, v.takeChanged()...)
	}
	slices.SortFunc(groups, registry.Group.Compare)
	return slices.Compact(groups)
}

// Run watches until ctx ends, and then returns nil. Whenever a watch ends, it lists the
// objects again and compares their versions, so that no change is missed.
func (t *WatchedTarget) Run(ctx context.Context) error {
	ctx = withoutLog(ctx)
	var running sync.WaitGroup
	for _, kind := range t.o.Kinds() {
		running.Go(func() { t.watchKind(ctx, kind) })
	}
	running.Wait()
	return nil
}

// watchKind watches the objects of a kind until ctx ends.
func (t *WatchedTarget) watchKind(ctx context.Context, kind string) {
	client := t.api.metadata.Resource(resourceOf(kind)).Namespace(t.o.Namespace)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, o)
			t.setWatchState(ctx, kind, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, o)
			t.setWatchState(ctx, kind, err)
			return w, err
		},
	}
	options := cache.ReflectorOptions{Name: kind}
	reflector := cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, t.api.versions[kind], options)
	for {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil {
			t.setWatchState(ctx, kind, err)
		}
		registry.Sleep(ctx, minRelistInterval+rand.N(minRelistInterval)) //nolint:gosec // spreads load
		if ctx.Err() != nil {
			return
		}
	}
}

// minRelistInterval is the minimum time between two lists, which may be large.
const minRelistInterval = 2 * time.Second

func (t *WatchedTarget) setWatchState(ctx context.Context, kind string, err error) {
	if ctx.Err() != nil {
		return
	}
	err = explain(err, "list and watch", objectRef{kind: kind, namespace: t.o.Namespace})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchStates[kind] = t.watchStates[kind].afterCall(err, time.Now())
}

// WatchState returns the state of a watch that fails or has not begun. If there is none, it
// returns the state of the watch that was answered last.
func (t *WatchedTarget) WatchState() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	var last State
	for _, kind := range t.o.Kinds() {
		s := t.watchStates[kind]
		if s.Err != nil || s.At.IsZero() {
			return s
		}
		if last.At.Before(s.At) {
			last = s
		}
	}
	return last
}

// An objectVersion is the state in which one change left an object. Resource versions of
// one kind of object are numbers that grow with each change, until etcd is restored:
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
type objectVersion struct {
	number uint64
	gone   bool // the change deleted the object
}

// A versionTracker finds the objects of one kind that another writer changed. It compares
// the version that the watch observed last with the version that we read or wrote last,
// whichever came first. It implements cache.ReflectorStore, so that a reflector fills it.
//
//	observed than known    known not deleted      known deleted
//	newer, not deleted     changed                created
//	newer, deleted         deleted                no news
//	same or older          no news                no news
type versionTracker struct {
	ready chan struct{} // shared by the trackers of all kinds

	// Guarded by mu.
	mu       sync.Mutex
	listed   bool                     // the watch began with a list, so that observed has every object
	observed map[string]objectVersion // by name; has deleted objects only while they are in known
	known    map[string]*knownObject  // by name; the objects of groups that are watched
	changed  map[string]bool          // names in known about which the watch observed news
}

// A knownObject is a watched object as it was read or written last. Guarded by the mu of its
// tracker.
type knownObject struct {
	objectVersion

	group          registry.Group
	isBeingWritten bool // observed versions may be our own write
}

func newVersionTracker(ready chan struct{}) *versionTracker {
	return &versionTracker{
		ready: ready, observed: make(map[string]objectVersion),
		known: make(map[string]*knownObject), changed: make(map[string]bool),
	}
}

// addGroup begins to track the object of a group, which will be read after that.
func (v *versionTracker) addGroup(group registry.Group) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known[group.Name] == nil {
		v.known[group.Name] = &knownObject{objectVersion: objectVersion{gone: true}}
	}
	v.known[group.Name].group = group
}

// removeGroup stops tracking an object. Removing one that is not tracked has no effect.
func (v *versionTracker) removeGroup(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.known, name)
	delete(v.changed, name)
	if v.observed[name].gone {
		delete(v.observed, name)
	}
}

// recordKnown records the version in which an object was read or written.
func (v *versionTracker) recordKnown(name, resourceVersion string) {
	v.setKnown(name, objectVersion{number: parseVersion(resourceVersion, 0)})
}

// recordListed records the version of an object in an earlier list. It returns false if the
// watch observed another version since, so that the object has to be read.
func (v *versionTracker) recordListed(name, resourceVersion string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := objectVersion{number: parseVersion(resourceVersion, newestVersion)}
	if v.listed && (v.observed[name] != now || now.number == newestVersion) {
		return false
	}
	if k := v.known[name]; k != nil {
		k.objectVersion = now
	}
	return true
}

// beginRead is called before an object is read. The returned function records that the read
// found no object.
func (v *versionTracker) beginRead(name string) (recordAbsent func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	oldest := v.observed[name].number // what the read finds is at least as new
	return func() { v.setKnown(name, objectVersion{oldest, true}) }
}

// recordDeleted records that we deleted an object in its known version.
func (v *versionTracker) recordDeleted(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.known[name]; k != nil {
		k.gone = true
	}
}

func (v *versionTracker) setKnown(name string, now objectVersion) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.known[name]; k != nil {
		k.objectVersion = now
	}
}

// beginWrite is called before an object is written, and the returned function after that.
// Versions observed meanwhile are judged when the write has ended.
func (v *versionTracker) beginWrite(name string) (end func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.known[name]
	if k == nil {
		return func() {}
	}
	k.isBeingWritten = true
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		k.isBeingWritten = false
		v.signalIfNews(name)
	}
}

var errNotMetadata = errors.New("not the metadata of an object")

func versionOf(object any) (name string, v objectVersion, err error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return "", objectVersion{}, fmt.Errorf("%T: %w", object, errNotMetadata)
	}
	return m.Name, objectVersion{number: parseVersion(m.ResourceVersion, newestVersion)}, nil
}

// Add implements cache.ReflectorStore.
func (v *versionTracker) Add(object any) error {
	name, now, err := versionOf(object)
	if err == nil {
		v.observe(name, now)
	}
	return err
}

// Update implements cache.ReflectorStore.
func (v *versionTracker) Update(object any) error { return v.Add(object) }

// Delete implements cache.ReflectorStore.
func (v *versionTracker) Delete(object any) error {
	name, now, err := versionOf(object)
	if now.gone = true; err == nil {
		v.observe(name, now)
	}
	return err
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (*versionTracker) Resync() error { return nil }

// Replace implements cache.ReflectorStore.
func (v *versionTracker) Replace(objects []any, resourceVersion string) error {
	all := make(map[string]objectVersion, len(objects))
	for _, object := range objects {
		name, now, err := versionOf(object)
		if err != nil {
			return err
		}
		all[name] = now
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.listed = true
	gone := objectVersion{parseVersion(resourceVersion, newestVersion), true}
	for _, name := range slices.AppendSeq(slices.Collect(maps.Keys(v.observed)), maps.Keys(v.known)) {
		if _, there := all[name]; !there {
			v.reconcile(name, gone)
		}
	}
	for name, now := range all {
		v.reconcile(name, now)
	}
	return nil
}

// reconcile records the version of an object in a list. It is news if it differs from the
// known version, even if it is older: after a restore of etcd, versions run backwards. The
// caller holds mu.
func (v *versionTracker) reconcile(name string, now objectVersion) {
	if k := v.known[name]; k != nil {
		switch {
		case k.gone && now.gone:
			k.objectVersion = now
		case k.objectVersion != now:
			k.objectVersion = objectVersion{} // older than any other
		}
	}
	v.setObserved(name, now)
}

func (v *versionTracker) observe(name string, now objectVersion) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.setObserved(name, now)
}

// setObserved records the version that the watch observed. The caller holds mu.
func (v *versionTracker) setObserved(name string, now objectVersion) {
	if now.gone && v.known[name] == nil {
		delete(v.observed, name)
		return
	}
	v.observed[name] = now
	v.signalIfNews(name)
}

// signalIfNews sends on ready if the observed version of an object is news. The caller
// holds mu.
func (v *versionTracker) signalIfNews(name string) {
	if k := v.known[name]; k == nil || k.isBeingWritten || !k.isNews(v.observed[name]) {
		return
	}
	v.changed[name] = true
	select {
	case v.ready <- struct{}{}:
	default:
	}
}

// isNews reports whether an observed version is news (see the table at versionTracker).
func (k *knownObject) isNews(observed objectVersion) bool {
	return observed.number > k.number && (!observed.gone || !k.gone)
}

// takeChanged returns the groups that another writer changed. The observed versions become
// the known ones, so that each change is returned once.
func (v *versionTracker) takeChanged() (groups []registry.Group) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name := range v.changed {
		if k := v.known[name]; !k.isBeingWritten && k.isNews(v.observed[name]) {
			groups = append(groups, k.group)
			k.objectVersion = v.observed[name]
		}
	}
	clear(v.changed)
	return groups
}

// parseVersion parses a resource version. It returns otherwise if that is not a number.
func parseVersion(resourceVersion string, otherwise uint64) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// newestVersion is the version of an object whose resource version is not a number. It is
// always news, so that the object is read.
const newestVersion = math.MaxUint64
