package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/kubelist"
)

// informer keeps the objects of one kind in one namespace in sync. It is the store of
// client-go's Reflector, which lists and watches, and lists again after 410 Gone.
type informer struct {
	// Immutable while run runs.
	reader   *Reader
	resource watchedResource
	client   rest.Interface

	// Guarded by reader.mu. Resource and Namespace of status are immutable.
	status    InformerStatus
	objects   map[objectName]runtime.Object
	isWatched bool // a watch has begun after the last list
	hasFailed bool // a request failed after the last list began

	// Only the goroutine of run touches this.
	pageLimit kubelist.Limit
}

// run lists and watches until ctx ends. It does not use the Reflector's own loop, which
// would log the errors that are in the status, and share one backoff among all informers.
func (i *informer) run(ctx context.Context) {
	r, backoff := i.reflector(), registry.Backoff{Min: time.Second, Max: 30 * time.Second}
	for failures := 0; ctx.Err() == nil; {
		start := time.Now()
		_ = r.ListAndWatchWithContext(ctx) // list and watch record the error
		i.setEnded()
		if failures++; time.Since(start) > backoff.Max {
			failures = 1
		}
		registry.Sleep(ctx, backoff.Spread(failures))
	}
}

func (i *informer) reflector() *cache.Reflector {
	lw := &cache.ListWatch{ListWithContextFunc: i.list, WatchFuncWithContext: i.watch}
	r := cache.NewReflectorWithOptions(lw, i.resource.example, i, cache.ReflectorOptions{
		Name: i.status.Resource,
		// With a period of 0, client-go would wait for a channel of the whole process, which
		// tests in virtual time cannot do.
		ResyncPeriod: 24 * time.Hour,
	})
	r.WatchListPageSize = kubelist.Limit(0).Value()
	return r
}

// list reads one page for the Reflector. It requests the current state instead of the
// possibly older state of one API server.
func (i *informer) list(ctx context.Context, o meta.ListOptions) (runtime.Object, error) {
	if o.Continue == "" {
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
		i.beginList()
	}
	list, err := i.readPageWithinLimit(ctx, o)
	if apierrors.IsNotFound(err) && i.setAbsent() {
		return &meta.List{ListMeta: meta.ListMeta{ResourceVersion: "0"}}, nil // watch will return errAbsent
	}
	if err != nil {
		i.setFailed(ctx, "list", err)
		return nil, err
	}
	i.UpdateResourceVersion("")
	return list, nil
}

// readPageWithinLimit reads a page. If the page is too large, it lowers pageLimit and reads a
// smaller one.
func (i *informer) readPageWithinLimit(ctx context.Context, o meta.ListOptions) (*meta.List, error) {
	for {
		if o.Limit > 0 {
			o.Limit = min(o.Limit, i.pageLimit.Value())
		}
		list, err := i.readPage(ctx, o)
		smaller, may := i.pageLimit.Reduced(int64(len(list.Items)))
		if !errors.Is(err, kubelist.ErrTooLarge) || o.Limit == 0 || !may {
			return list, err
		}
		i.pageLimit = smaller
	}
}

// readPage reads a page object by object, and trims each.
func (i *informer) readPage(ctx context.Context, o meta.ListOptions) (*meta.List, error) {
	ctx, cancel := context.WithTimeout(ctx, timeoutOf(o))
	defer cancel()
	list := new(meta.List)
	body, err := i.request(&o).Stream(ctx)
	if err != nil {
		return list, err
	}
	defer body.Close()
	page, err := kubelist.Read(body, i.resource.kind, func(text json.RawMessage) error {
		object := i.resource.example.DeepCopyObject()
		if err := json.Unmarshal(text, object); err != nil {
			return err
		}
		i.reader.o.trim(object)
		list.Items = append(list.Items, runtime.RawExtension{Object: object})
		return nil
	})
	list.ResourceVersion, list.Continue = page.ResourceVersion, page.Continue
	return list, err
}

func timeoutOf(o meta.ListOptions) time.Duration {
	if o.TimeoutSeconds != nil {
		return time.Duration(*o.TimeoutSeconds) * time.Second
	}
	return time.Minute
}

// watch begins a watch for the Reflector. It fails if a list has to come first.
func (i *informer) watch(ctx context.Context, o meta.ListOptions) (watch.Interface, error) {
	if err := i.checkListNeeded(); err != nil {
		return nil, err
	}
	o.Watch = true
	w, err := i.request(&o).Watch(ctx)
	if err != nil {
		i.setFailed(ctx, "watch", err)
		return nil, err
	}
	i.setWatched()
	i.UpdateResourceVersion("")
	return w, nil
}

// request returns a request for the kind. It does not retry, because the Reflector does, and
// each failure has to be recorded.
func (i *informer) request(o *meta.ListOptions) *rest.Request {
	r := i.client.Get().Resource(i.resource.plural).VersionedParams(o, meta.ParameterCodec)
	r = r.MaxRetries(0).Timeout(timeoutOf(*o))
	if i.status.Namespace != "" {
		r = r.Namespace(i.status.Namespace)
	}
	return r
}

// Add implements cache.ReflectorStore.
func (i *informer) Add(o any) error { return i.Update(o) }

// Update implements cache.ReflectorStore.
func (i *informer) Update(o any) error {
	object, name, err := objectOf(o)
	if err != nil {
		return err
	}
	i.reader.o.trim(object)
	i.reader.changeModel(func(m *Model) {
		i.objects[name] = object
		i.status.Events++
		m.Put(object)
	})
	return nil
}

// Delete implements cache.ReflectorStore.
func (i *informer) Delete(o any) error {
	object, name, err := objectOf(o)
	if err != nil {
		return err
	}
	i.reader.changeModel(func(m *Model) {
		delete(i.objects, name)
		i.status.Events++
		m.Remove(object)
	})
	return nil
}

// Replace implements cache.ReflectorStore.
func (i *informer) Replace(list []any, _ string) error {
	objects := make(map[objectName]runtime.Object, len(list))
	for _, o := range list {
		object, name, err := objectOf(o)
		if err != nil {
			return err
		}
		objects[name] = object
	}
	i.reader.changeModel(func(m *Model) {
		for name, old := range i.objects {
			if objects[name] == nil {
				m.Remove(old)
			}
		}
		for _, o := range objects {
			m.Put(o)
		}
		i.objects, i.status.Listed = objects, true
		i.status.Lists++
	})
	return nil
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater. The Reflector calls it
// after each event and each bookmark, which the API server sends every minute.
func (i *informer) UpdateResourceVersion(string) {
	i.reader.mu.Lock()
	defer i.reader.mu.Unlock()
	i.status.Heard = time.Now()
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (*informer) Resync() error { return nil }

func objectOf(o any) (runtime.Object, objectName, error) {
	object, ok := o.(runtime.Object)
	if !ok {
		return nil, objectName{}, fmt.Errorf("%T is not an object", o)
	}
	m, err := apimeta.Accessor(object)
	if err != nil {
		return nil, objectName{}, fmt.Errorf("%T: %w", o, err)
	}
	return object, nameOf(m), nil
}

// beginList records that a list begins. Until a watch begins after it, deletions are not
// observed.
func (i *informer) beginList() {
	i.reader.changeModel(func(*Model) { i.isWatched, i.hasFailed = i.status.Absent, false })
}

// setWatched records that a watch has begun.
func (i *informer) setWatched() {
	i.reader.changeModel(func(*Model) {
		if i.status.Err != nil {
			i.reader.o.Log.Info("kubernetes objects watched again",
				"resource", i.status.Resource, "namespace", i.status.Namespace)
		}
		i.isWatched, i.status.Err, i.status.Absent = true, nil, false
	})
}

// setEnded records that the watch has ended.
func (i *informer) setEnded() {
	i.reader.changeModel(func(*Model) { i.isWatched = i.status.Absent })
}

// setFailed records, and logs if it is new, why a request failed.
func (i *informer) setFailed(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	err = i.explain(verb, err)
	i.reader.changeModel(func(*Model) {
		if i.status.Err == nil || i.status.Err.Error() != err.Error() {
			i.reader.o.Log.Warn("kubernetes objects not read",
				"resource", i.status.Resource, "namespace", i.status.Namespace, "err", err)
		}
		if i.status.Err == nil {
			i.status.Since = time.Now()
		}
		i.isWatched, i.hasFailed, i.status.Err = false, true, err
	})
}

// setAbsent records that the API does not serve the kind. It returns false if the kind is not
// optional or objects of it are known: then the response is a failure.
func (i *informer) setAbsent() (absent bool) {
	if i.resource.GroupVersion != istioVersion {
		return false
	}
	i.reader.changeModel(func(*Model) {
		i.status.Absent = len(i.objects) == 0
		absent = i.status.Absent
	})
	return absent
}

var (
	errAbsent = errors.New("the API does not serve this kind of object")
	errMissed = errors.New("changes may have been missed")
)

// checkListNeeded returns an error if a list has to come before the next watch. It marks a
// kind that the API does not serve as in sync. After a failure, a watch would report missed
// changes late, as if they happened now.
func (i *informer) checkListNeeded() (err error) {
	i.reader.changeModel(func(*Model) {
		switch {
		case i.status.Absent:
			i.isWatched, i.status.Err, err = true, nil, errAbsent
		case i.status.Err != nil && i.hasFailed:
			err = errMissed
		}
	})
	return err
}

// Forbidden reports which right is missing.
type Forbidden struct {
	Resource, Namespace, Verb string

	err error
}

// Error implements error.
func (f *Forbidden) Error() string {
	where := "in all namespaces"
	if f.Namespace != "" {
		where = "in namespace " + f.Namespace
	}
	return fmt.Sprintf("%v; allow get, list and watch of %s %s", f.err, f.Resource, where)
}

// Unwrap returns the error of the API.
func (f *Forbidden) Unwrap() error { return f.err }

// explain wraps an error of the API with the request and, if one is known, the remedy.
func (i *informer) explain(verb string, err error) error {
	where := i.status.Resource
	if i.status.Namespace != "" {
		where += " in namespace " + i.status.Namespace
	}
	switch {
	case apierrors.IsForbidden(err):
		return &Forbidden{Resource: i.status.Resource, Namespace: i.status.Namespace, Verb: verb, err: err}
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s %s: %w; the credentials have expired or are for another cluster", verb, where, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s %s: %w; the API no longer serves them: was the custom resource definition removed?",
			verb, where, err)
	}
	return fmt.Errorf("%s %s: %w", verb, where, err)
}

// InformerStatus is the status of the objects of one kind in one namespace.
type InformerStatus struct {
	Resource  string // name in RBAC
	Namespace string // empty: all
	Objects   int
	Listed    bool // listed completely over this connection
	Absent    bool // the API does not serve the kind
	Lists     int  // complete lists; more than one per connection after 410 Gone
	Events    int  // observed changes

	// Err is the reason why the objects are not in sync, and Since the time since when. Err
	// wraps a *Forbidden if a right is missing.
	Err   error
	Since time.Time

	// Heard is when the API server last sent anything. A working watch is silent for at most
	// a minute.
	Heard time.Time
}

// Status returns the status of all kinds and namespaces.
func (r *Reader) Status() []InformerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []InformerStatus
	for _, i := range r.informers {
		s := i.status
		s.Objects = len(i.objects)
		if s.Err == nil {
			s.Since = time.Time{}
		}
		all = append(all, s)
	}
	return all
}
