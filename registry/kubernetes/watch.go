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

// Read implements registry.Target.
func (t *WatchedTarget) Read(ctx context.Context, group registry.Group) ([]registry.Held, error) {
	t.api.versions.remove(group)
	return t.Target.Read(ctx, group)
}

// Watch implements registry.Watched.
func (t *WatchedTarget) Watch(ctx context.Context, group registry.Group) ([]registry.Held, error) {
	t.api.versions.add(group)
	return t.Target.Read(ctx, group)
}

// Changed implements registry.Watched.
func (t *WatchedTarget) Changed() <-chan struct{} { return t.api.versions.ready }

// Changes implements registry.Watched.
func (t *WatchedTarget) Changes() []registry.Group { return t.api.versions.drain() }

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
			return list, err //nolint:wrapcheck // the reflector looks at it
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := of.Watch(ctx, o)
			t.setWatch(ctx, kind, err)
			return w, err //nolint:wrapcheck // the reflector looks at it
		},
	}
	store := watchStore{t.api.versions, ref{kind: kind, namespace: t.o.Namespace}}
	reflector := cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, store, cache.ReflectorOptions{Name: kind})
	for {
		if err := reflector.ListAndWatchWithContext(ctx); err != nil {
			t.setWatch(ctx, kind, err)
		}
		timer := time.NewTimer(rewatch + rand.N(rewatch)) //nolint:gosec // no secret
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// rewatch is the least time between two lists, which may be large.
const rewatch = 2 * time.Second

func (t *WatchedTarget) setWatch(ctx context.Context, kind string, err error) {
	if ctx.Err() != nil {
		return
	}
	err = explain(err, "list and watch", ref{kind: kind, namespace: t.o.Namespace})
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

// A watchStore is what a reflector stores into: versions, of one kind and namespace.
type watchStore struct {
	versions *versions
	of       ref // without a name
}

var errNotMetadata = errors.New("no metadata of an object")

func (s watchStore) read(object any) (ref, version, error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return ref{}, version{}, fmt.Errorf("%T: %w", object, errNotMetadata)
	}
	return ref{s.of.kind, m.Namespace, m.Name}, version{number: number(m.ResourceVersion, newest)}, nil
}

func (s watchStore) Add(object any) error {
	r, v, err := s.read(object)
	if err == nil {
		s.versions.observe(r, v)
	}
	return err
}

func (s watchStore) Update(object any) error { return s.Add(object) }

func (s watchStore) Delete(object any) error {
	r, v, err := s.read(object)
	if v.gone = true; err == nil {
		s.versions.observe(r, v)
	}
	return err
}

func (watchStore) Resync() error { return nil }

func (s watchStore) Replace(objects []any, resourceVersion string) error {
	all := make(map[ref]version, len(objects))
	for _, object := range objects {
		r, v, err := s.read(object)
		if err != nil {
			return err
		}
		all[r] = v
	}
	s.versions.replace(s.of, all, version{number: number(resourceVersion, newest)})
	return nil
}
