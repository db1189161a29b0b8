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
// client-go's Reflector, which lists and watches, and lists again after 410. The
// reader's lock guards what is not constant.
type informer struct {
	reader   *Reader
	resource watchedResource
	client   rest.Interface

	status  InformerStatus
	objects map[objectName]runtime.Object
	watched bool // since it was listed
	missed  bool // a request failed since a list began

	limit kubelist.Limit // of a page; only the goroutine of run touches it
}

// run lists and watches until ctx ends. The Reflector's own loop would log the errors
// that the status has, and slow down all informers for each of them.
func (i *informer) run(ctx context.Context) {
	r, backoff := i.reflector(), registry.Backoff{Min: time.Second, Max: 30 * time.Second}
	for failures := 0; ctx.Err() == nil; {
		start := time.Now()
		_ = r.ListAndWatchWithContext(ctx) // recorded by its requests
		i.setEnded()
		if failures++; time.Since(start) > backoff.Max {
			failures = 1
		}
		registry.Sleep(ctx, backoff.Spread(failures))
	}
}

func (i *informer) reflector() *cache.Reflector {
	// A period of 0 would have client-go wait for a channel of the whole process, which virtual time does not know.
	lw := &cache.ListWatch{ListWithContextFunc: i.list, WatchFuncWithContext: i.watch}
	r := cache.NewReflectorWithOptions(lw, i.resource.example, i, cache.ReflectorOptions{Name: i.status.Resource, ResyncPeriod: 24 * time.Hour})
	r.WatchListPageSize = kubelist.Limit(0).Value()
	return r
}

// list reads one page, of what the API holds now and not of an older state of one of its
// replicas.
func (i *informer) list(ctx context.Context, o meta.ListOptions) (runtime.Object, error) {
	if o.Continue == "" {
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
		i.beginList()
	}
	list, err := i.page(ctx, o)
	if apierrors.IsNotFound(err) && i.setAbsent() {
		return &meta.List{ListMeta: meta.ListMeta{ResourceVersion: "0"}}, nil // watch returns an error then
	}
	if err != nil {
		i.setFailed(ctx, "list", err)
		return nil, err
	}
	i.UpdateResourceVersion("")
	return list, nil
}

// page reads a page, or the first part of one that is too large.
func (i *informer) page(ctx context.Context, o meta.ListOptions) (*meta.List, error) {
	for {
		if o.Limit > 0 {
			o.Limit = min(o.Limit, i.limit.Value())
		}
		list, err := i.readPage(ctx, o)
		smaller, may := i.limit.Reduced(int64(len(list.Items)))
		if !errors.Is(err, kubelist.ErrTooLarge) || o.Limit == 0 || !may {
			return list, err
		}
		i.limit = smaller
	}
}

// readPage reads a page object by object, of each of which little is kept.
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

// watch watches until ctx ends. After some errors the Reflector has to list again.
func (i *informer) watch(ctx context.Context, o meta.ListOptions) (watch.Interface, error) {
	if err := i.requiresList(); err != nil {
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

// request is a request for the kind, without retries: the Reflector has its own, and
// a refusal is to be seen.
func (i *informer) request(o *meta.ListOptions) *rest.Request {
	r := i.client.Get().Resource(i.resource.name).VersionedParams(o, meta.ParameterCodec).MaxRetries(0).Timeout(timeoutOf(*o))
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
	i.reader.change(func(m *Model) {
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
	i.reader.change(func(m *Model) {
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
	i.reader.change(func(m *Model) {
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
		return nil, objectName{}, fmt.Errorf("%T is no object", o)
	}
	m, err := apimeta.Accessor(object)
	if err != nil {
		return nil, objectName{}, fmt.Errorf("%T: %w", o, err)
	}
	return object, nameOf(m), nil
}

// beginList records that a list begins: what is missing from it was not observed to
// be deleted.
func (i *informer) beginList() {
	i.reader.change(func(*Model) { i.watched, i.missed = i.status.Absent, false })
}

// setWatched records that changes are observed from now on.
func (i *informer) setWatched() {
	i.reader.change(func(*Model) {
		if i.status.Err != nil {
			i.reader.o.Log.Info("kubernetes objects watched again", "resource", i.status.Resource, "namespace", i.status.Namespace)
		}
		i.watched, i.status.Err, i.status.Absent = true, nil, false
	})
}

func (i *informer) setEnded() {
	i.reader.change(func(*Model) { i.watched = i.status.Absent })
}

func (i *informer) setFailed(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	err = i.explain(verb, err)
	i.reader.change(func(*Model) {
		if i.status.Err == nil || i.status.Err.Error() != err.Error() {
			i.reader.o.Log.Warn("kubernetes objects not read", "resource", i.status.Resource, "namespace", i.status.Namespace, "err", err)
		}
		if i.status.Err == nil {
			i.status.Since = time.Now()
		}
		i.watched, i.missed, i.status.Err = false, true, err
	})
}

// setAbsent records that the API has no such kind, unless there were objects of it.
func (i *informer) setAbsent() (absent bool) {
	if i.resource.GroupVersion != istioVersion {
		return false
	}
	i.reader.change(func(*Model) {
		i.status.Absent = len(i.objects) == 0
		absent = i.status.Absent
	})
	return absent
}

var (
	errAbsent = errors.New("the API has no such kind of object")
	errMissed = errors.New("changes may have been missed")
)

// requiresList returns why a list has to come before the next watch. A kind that does
// not exist is in sync. After a failed watch, changes would be reported late, as if
// they happened now.
func (i *informer) requiresList() (err error) {
	i.reader.change(func(*Model) {
		switch {
		case i.status.Absent:
			i.watched, i.status.Err, err = true, nil, errAbsent
		case i.status.Err != nil && i.missed:
			err = errMissed
		}
	})
	return err
}

// Forbidden says which right is missing.
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

func (i *informer) explain(verb string, err error) error {
	where := i.status.Resource
	if i.status.Namespace != "" {
		where += " in namespace " + i.status.Namespace
	}
	switch {
	case apierrors.IsForbidden(err):
		return &Forbidden{Resource: i.status.Resource, Namespace: i.status.Namespace, Verb: verb, err: err}
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s %s: %w; the credentials are not accepted: they have expired, or are for another cluster", verb, where, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s %s: %w; the API no longer serves them: was the definition of the kind removed?", verb, where, err)
	}
	return fmt.Errorf("%s %s: %w", verb, where, err)
}

// InformerStatus is the status of the objects of one kind in one namespace.
type InformerStatus struct {
	Resource  string // as RBAC calls it
	Namespace string // empty: all
	Objects   int
	Listed    bool      // in full over this connection
	Absent    bool      // the API has no such kind
	Lists     int       // full lists; more than one of a connection after 410 Gone
	Events    int       // observed changes
	Err       error     // why it is not in sync; it wraps *Forbidden if a right is missing
	Since     time.Time // of Err
	Heard     time.Time // when the API server last sent anything of them; a watch is silent for a minute at most
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
