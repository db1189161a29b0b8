package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A WatchedTarget is a Target over the Kubernetes API that is told what others
// change in its namespace, while Run runs.
type WatchedTarget struct {
	*Target

	api *API

	mu    sync.Mutex
	watch State
}

// NewWatchedTarget returns a target over an API, which no other one uses.
func NewWatchedTarget(api *API, o Options) *WatchedTarget {
	return &WatchedTarget{Target: NewTarget(api, o), api: api}
}

// Read implements registry.Target.
func (t *WatchedTarget) Read(ctx context.Context, group registry.Group) ([]registry.Held, error) {
	t.api.versions.leave(types.NamespacedName{Namespace: group.Namespace, Name: group.Name})
	return t.Target.Read(ctx, group)
}

// Watch implements registry.Watched.
func (t *WatchedTarget) Watch(ctx context.Context, group registry.Group) ([]registry.Held, error) {
	t.api.versions.enter(group)
	return t.Target.Read(ctx, group)
}

// Changed implements registry.Watched.
func (t *WatchedTarget) Changed() <-chan struct{} { return t.api.versions.ready }

// Changes implements registry.Watched.
func (t *WatchedTarget) Changes() []registry.Group { return t.api.versions.take() }

// Run watches until ctx ends, and then returns nil. Each time that the watch ends it
// lists the objects once more, and by their versions finds what changed meanwhile.
func (t *WatchedTarget) Run(ctx context.Context) error {
	ctx = quiet(ctx)
	of := t.api.metadata.Resource(serviceEntries()).Namespace(t.o.Namespace)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := of.List(ctx, o)
			t.watching(ctx, err)
			return list, err //nolint:wrapcheck // the reflector looks at it
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := of.Watch(ctx, o)
			t.watching(ctx, err)
			return w, err //nolint:wrapcheck // the reflector looks at it
		},
	}
	reflector := cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, told{t.api.versions}, cache.ReflectorOptions{Name: "ServiceEntries"})
	for {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil {
			t.watching(ctx, err)
		}
		timer := time.NewTimer(rewatch + rand.N(rewatch)) //nolint:gosec // no secret
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// rewatch is the least time between two lists, of which each may be large.
const rewatch = 2 * time.Second

// watching notes how the watch stands.
func (t *WatchedTarget) watching(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		err = explain(err, "list and watch", t.o.Namespace)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watch = t.watch.after(err, time.Now())
}

// WatchState returns how the watch stands.
func (t *WatchedTarget) WatchState() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watch
}

// told is what a reflector stores into.
type told struct{ versions *versions }

var errNotMetadata = errors.New("no metadata of an object")

func (s told) one(object any, gone bool) error {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("%T: %w", object, errNotMetadata)
	}
	s.versions.tell(types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, version{number(m.ResourceVersion, newest), gone})
	return nil
}

func (s told) Add(object any) error    { return s.one(object, false) }
func (s told) Update(object any) error { return s.one(object, false) }
func (s told) Delete(object any) error { return s.one(object, true) }
func (told) Resync() error             { return nil }

func (s told) Replace(objects []any, resourceVersion string) error {
	all := make(map[types.NamespacedName]version, len(objects))
	for _, object := range objects {
		m, ok := object.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("%T: %w", object, errNotMetadata)
		}
		all[types.NamespacedName{Namespace: m.Namespace, Name: m.Name}] = version{number: number(m.ResourceVersion, newest)}
	}
	s.versions.replace(all, version{number: number(resourceVersion, newest)})
	return nil
}
