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

// A WatchedTarget is a Target over the Kubernetes API. While Run runs, it observes what
// others change in its namespace.
type WatchedTarget struct {
	*Target

	api *API

	mu    sync.Mutex
	watch map[string]State // by kind of object
}

// NewWatchedTarget returns a target over an API, which no other target uses.
func NewWatchedTarget(api *API, o Options) *WatchedTarget {
	return &WatchedTarget{Target: NewTarget(api, o), api: api, watch: make(map[string]State)}
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
		v.remove(group.Name)
	}
	return t.Target.Read(ctx, group)
}

// Watch implements registry.Watcher.
func (t *WatchedTarget) Watch(ctx context.Context, group registry.Group) ([]registry.Stored, error) {
	for _, v := range t.api.versions {
		v.add(group)
	}
	return t.Target.Read(ctx, group)
}

// Changed implements registry.Watcher.
func (t *WatchedTarget) Changed() <-chan struct{} { return t.api.changed }

// Changes implements registry.Watcher.
func (t *WatchedTarget) Changes() (groups []registry.Group) {
	for _, v := range t.api.versions {
		groups = append(groups, v.drain()...)
	}
	slices.SortFunc(groups, registry.Group.Compare)
	return slices.Compact(groups)
}

// Run watches until ctx ends, and then returns nil. Whenever the watch ends it lists the
// objects once more, and finds by their versions what changed meanwhile.
func (t *WatchedTarget) Run(ctx context.Context) error {
	ctx = unlogged(ctx)
	var running sync.WaitGroup
	for _, kind := range t.o.Kinds() {
		running.Go(func() { t.run(ctx, kind) })
	}
	running.Wait()
	return nil
}

func (t *WatchedTarget) run(ctx context.Context, kind string) {
	of := t.api.metadata.Resource(resource(kind)).Namespace(t.o.Namespace)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := of.List(ctx, o)
			t.setWatch(ctx, kind, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := of.Watch(ctx, o)
			t.setWatch(ctx, kind, err)
			return w, err
		},
	}
	reflector := cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, t.api.versions[kind], cache.ReflectorOptions{Name: kind})
	for {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil {
			t.setWatch(ctx, kind, err)
		}
		registry.Sleep(ctx, rewatch+rand.N(rewatch)) //nolint:gosec // no secret
		if ctx.Err() != nil {
			return
		}
	}
}

// rewatch is the least time between two lists, which may be large.
const rewatch = 2 * time.Second

func (t *WatchedTarget) setWatch(ctx context.Context, kind string, err error) {
	if ctx.Err() != nil {
		return
	}
	err = explain(err, "list and watch", objectRef{kind: kind, namespace: t.o.Namespace})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watch[kind] = t.watch[kind].after(err, time.Now())
}

// WatchState returns the state of the watch: of the kind that fails, or that was
// answered last.
func (t *WatchedTarget) WatchState() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	var last State
	for _, kind := range t.o.Kinds() {
		s := t.watch[kind]
		if s.Err != nil || s.At.IsZero() {
			return s
		}
		if last.At.Before(s.At) {
			last = s
		}
	}
	return last
}

// A objectVersion is an object as one change left it. Resource versions of one kind of
// object are numbers that grow with each change, until etcd is restored:
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
type objectVersion struct {
	number uint64
	gone   bool
}

// versionTracker compares what a watch observes of the objects of one kind with what was read
// or written of them last. The order of the two does not matter. It is what a reflector
// stores into.
type versionTracker struct {
	ready chan struct{} // of all kinds

	mu       sync.Mutex
	listed   bool                     // the watch began with a list, so that observed has every object
	observed map[string]objectVersion // by name, by the watch; of deleted objects, while they are known
	known    map[string]*knownObject  // of the objects that are watched
	changed  map[string]bool          // of known: those that the watch observed since
}

// A knownObject is what was read or written last of an object that is watched.
type knownObject struct {
	objectVersion

	group   registry.Group
	writing bool // what the watch observes may be our write
}

func newVersionTracker(ready chan struct{}) *versionTracker {
	return &versionTracker{ready: ready, observed: make(map[string]objectVersion), known: make(map[string]*knownObject), changed: make(map[string]bool)}
}

// add adds the object of a group, before it is read.
func (v *versionTracker) add(group registry.Group) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known[group.Name] == nil {
		v.known[group.Name] = &knownObject{objectVersion: objectVersion{gone: true}}
	}
	v.known[group.Name].group = group
}

func (v *versionTracker) remove(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.known, name)
	delete(v.changed, name)
	if v.observed[name].gone {
		delete(v.observed, name)
	}
}

// saw records the version that an object was read or written as.
func (v *versionTracker) saw(name, resourceVersion string) {
	v.set(name, objectVersion{number: number(resourceVersion, 0)})
}

// sawListed records that an object was read as an earlier list reported it, unless the
// watch observed it otherwise: then it reports false, and the object has to be read.
func (v *versionTracker) sawListed(name, resourceVersion string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := objectVersion{number: number(resourceVersion, newest)}
	if v.listed && (v.observed[name] != now || now.number == newest) {
		return false
	}
	if k := v.known[name]; k != nil {
		k.objectVersion = now
	}
	return true
}

// none returns a function to record that a read that begins now found no object.
func (v *versionTracker) none(name string) func() {
	v.mu.Lock()
	defer v.mu.Unlock()
	oldest := v.observed[name].number // the read is not older
	return func() { v.set(name, objectVersion{oldest, true}) }
}

// sawNone records that an object was deleted as it was known.
func (v *versionTracker) sawNone(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.known[name]; k != nil {
		k.gone = true
	}
}

func (v *versionTracker) set(name string, now objectVersion) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.known[name]; k != nil {
		k.objectVersion = now
	}
}

// begin records that an object is about to be written. The caller calls end after
// that.
func (v *versionTracker) begin(name string) (end func()) {
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

var errNotMetadata = errors.New("no metadata of an object")

func versionOf(object any) (name string, v objectVersion, err error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return "", objectVersion{}, fmt.Errorf("%T: %w", object, errNotMetadata)
	}
	return m.Name, objectVersion{number: number(m.ResourceVersion, newest)}, nil
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
	gone := objectVersion{number(resourceVersion, newest), true}
	for _, name := range slices.AppendSeq(slices.Collect(maps.Keys(v.observed)), maps.Keys(v.known)) {
		if _, there := all[name]; !there {
			v.list(name, gone)
		}
	}
	for name, now := range all {
		v.list(name, now)
	}
	return nil
}

// list records what a list reports. After etcd was restored versions run backwards, so that
// any other version than the known one is news. The caller holds mu.
func (v *versionTracker) list(name string, now objectVersion) {
	if k := v.known[name]; k != nil {
		switch {
		case k.gone && now.gone:
			k.objectVersion = now // later ones are compared with it
		case k.objectVersion != now:
			k.objectVersion = objectVersion{} // older than any
		}
	}
	v.record(name, now)
}

func (v *versionTracker) observe(name string, now objectVersion) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.record(name, now)
}

// record records what the watch reports. The caller holds mu.
func (v *versionTracker) record(name string, now objectVersion) {
	if now.gone && v.known[name] == nil {
		delete(v.observed, name)
		return
	}
	v.observed[name] = now
	v.wake(name)
}

// wake makes ready ready if an object is another than the known one. The caller holds
// mu.
func (v *versionTracker) wake(name string) {
	if k := v.known[name]; k == nil || k.writing || !k.differs(v.observed[name]) {
		return
	}
	v.changed[name] = true
	select {
	case v.ready <- struct{}{}:
	default:
	}
}

// differs reports whether an observed version is news.
func (k *knownObject) differs(observed objectVersion) bool {
	return observed.number > k.number && (!observed.gone || !k.gone)
}

// drain returns the groups that changed since they were read.
func (v *versionTracker) drain() (groups []registry.Group) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name := range v.changed {
		if k := v.known[name]; !k.writing && k.differs(v.observed[name]) {
			groups = append(groups, k.group)
			k.objectVersion = v.observed[name]
		}
	}
	clear(v.changed)
	return groups
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
