package kube

import (
	"context"
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
)

// pageSize is how many objects are asked for at a time.
const pageSize = 500

// feed follows the objects of one kind in one namespace. It is the store of
// client-go's Reflector, which lists and watches, and begins anew after 410.
// The lock of the reader guards what is not constant.
type feed struct {
	reader    *Reader
	resource  resource
	namespace string // empty: all of them
	client    rest.Interface

	objects map[ref]struct{}
	listed  bool // over this connection
	watched bool // since it was listed
	lists   int
	events  int
	missing bool  // a request failed since a full reading began
	absent  bool  // the API has no such kind
	err     error // why it is not followed
	since   time.Time
}

// run keeps the feed up to date until ctx ends. The Reflector would log errors that
// the status has, and slow down all feeds for each of them.
func (f *feed) run(ctx context.Context) {
	r, wait := f.reflector(), registry.Backoff{Min: time.Second, Max: 30 * time.Second}
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		_ = r.ListAndWatchWithContext(ctx) // its requests have told
		f.ended()
		if failures++; time.Since(began) > wait.Max {
			failures = 1
		}
		timer := time.NewTimer(wait.Spread(failures))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (f *feed) reflector() *cache.Reflector {
	// A period of 0 would have client-go wait for a channel of the whole process, which virtual time does not know.
	r := cache.NewReflectorWithOptions(f, f.resource.example, f, cache.ReflectorOptions{Name: f.resource.String(), ResyncPeriod: 24 * time.Hour})
	r.WatchListPageSize = pageSize
	return r
}

// List implements cache.Lister.
func (f *feed) List(o meta.ListOptions) (runtime.Object, error) {
	return f.ListWithContext(context.Background(), o)
}

// Watch implements cache.Watcher.
func (f *feed) Watch(o meta.ListOptions) (watch.Interface, error) {
	return f.WatchWithContext(context.Background(), o)
}

// ListWithContext implements cache.ListerWithContext: it reads one page. What is
// read is what the API holds now, and not what a replica of it held once.
func (f *feed) ListWithContext(ctx context.Context, o meta.ListOptions) (runtime.Object, error) {
	if o.Continue == "" {
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
		f.begin()
	}
	list, err := f.request(&o).Do(ctx).Get()
	if err == nil {
		err = apimeta.EachListItem(list, func(one runtime.Object) error {
			f.reader.o.trim(one)
			return nil
		})
	}
	if apierrors.IsNotFound(err) && f.isAbsent() {
		return f.none(), nil
	}
	if err != nil {
		f.failed(ctx, "list", err)
		return nil, err //nolint:wrapcheck // the Reflector decides by it
	}
	return list, nil
}

// WatchWithContext implements cache.WatcherWithContext.
func (f *feed) WatchWithContext(ctx context.Context, o meta.ListOptions) (watch.Interface, error) {
	if f.waitsForKind() {
		return nil, errAbsent
	}
	if f.missed() {
		return nil, errMissed
	}
	o.Watch = true
	w, err := f.request(&o).Watch(ctx)
	if err != nil {
		f.failed(ctx, "watch", err)
		return nil, err //nolint:wrapcheck // the Reflector decides by it
	}
	f.follows()
	return w, nil
}

// errAbsent has the Reflector list again, after a while.
var errAbsent = errors.New("the API has no such kind of object")

// errMissed has the Reflector list again.
var errMissed = errors.New("changes may have been missed")

// request is one of the kind, without retries: the Reflector has its own, and what
// was refused is to be seen.
func (f *feed) request(o *meta.ListOptions) *rest.Request {
	r := f.client.Get().Resource(f.resource.name).VersionedParams(o, meta.ParameterCodec).MaxRetries(0)
	if o.TimeoutSeconds != nil {
		r = r.Timeout(time.Duration(*o.TimeoutSeconds) * time.Second)
	} else {
		r = r.Timeout(time.Minute)
	}
	if f.namespace != "" {
		r = r.Namespace(f.namespace)
	}
	return r
}

// none is a list without objects. Its version makes no watch begin.
func (*feed) none() runtime.Object {
	return &meta.List{ListMeta: meta.ListMeta{ResourceVersion: "0"}}
}

// The rest implements cache.ReflectorStore.

// Add takes an object in.
func (f *feed) Add(o any) error { return f.Update(o) }

// Update takes an object in, in place of the one of its name.
func (f *feed) Update(o any) error {
	object, name, err := objectOf(o)
	if err != nil {
		return err
	}
	f.reader.o.trim(object)
	f.reader.change(func(w *World) {
		f.objects[name] = struct{}{}
		f.events++
		w.Put(object)
	})
	return nil
}

// Delete takes an object out.
func (f *feed) Delete(o any) error {
	object, name, err := objectOf(o)
	if err != nil {
		return err
	}
	f.reader.change(func(w *World) {
		delete(f.objects, name)
		f.events++
		w.Remove(object)
	})
	return nil
}

// Replace has these objects, and no others, be there.
func (f *feed) Replace(list []any, _ string) error {
	now := make(map[ref]struct{}, len(list))
	objects := make([]runtime.Object, 0, len(list))
	for _, o := range list {
		object, name, err := objectOf(o)
		if err != nil {
			return err
		}
		now[name] = struct{}{}
		objects = append(objects, object)
	}
	f.reader.change(func(w *World) {
		for name := range f.objects {
			if _, still := now[name]; !still {
				w.Remove(named(f.resource.example, name))
			}
		}
		for _, o := range objects {
			w.Put(o)
		}
		f.objects, f.listed = now, true
		f.lists++
	})
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (*feed) Resync() error { return nil }

func objectOf(o any) (runtime.Object, ref, error) {
	object, ok := o.(runtime.Object)
	if !ok {
		return nil, ref{}, fmt.Errorf("%T is no object", o)
	}
	m, err := apimeta.Accessor(object)
	if err != nil {
		return nil, ref{}, fmt.Errorf("%T: %w", o, err)
	}
	return object, refOf(m), nil
}

// named returns an object of a kind that has a name and no more.
func named(example runtime.Object, name ref) runtime.Object {
	object := example.DeepCopyObject()
	m, err := apimeta.Accessor(object)
	if err != nil {
		panic(err) // a constant of this package
	}
	m.SetNamespace(name.Namespace)
	m.SetName(name.Name)
	return object
}

// Feed is how the objects of one kind in one namespace are followed.
type Feed struct {
	Resource  string // as RBAC calls it
	Namespace string // empty: all
	Objects   int
	Listed    bool      // everything was told once over this connection
	Absent    bool      // the API has no such kind
	Lists     int       // full readings; more than one of a connection after 410 Gone
	Events    int       // changes that were told
	Err       error     // why it is not followed; it wraps *Forbidden where a right is missing
	Since     time.Time // of Err
}

// Status returns how everything is followed.
func (r *Reader) Status() []Feed {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Feed
	for _, f := range r.feeds {
		s := Feed{
			Resource: f.resource.String(), Namespace: f.namespace, Objects: len(f.objects), Listed: f.listed,
			Absent: f.absent, Lists: f.lists, Events: f.events, Err: f.err,
		}
		if f.err != nil {
			s.Since = f.since
		}
		all = append(all, s)
	}
	return all
}

// begin notes that a full reading begins: what is not there afterwards was found
// missing, and not told to be gone.
func (f *feed) begin() {
	f.reader.change(func(*World) { f.watched, f.missing = f.absent, false })
}

// follows notes that all is told from now on as it happens.
func (f *feed) follows() {
	f.reader.change(func(*World) {
		if f.err != nil {
			f.reader.o.Log.Info("kubernetes objects are followed again", "resource", f.resource.String(), "namespace", f.namespace)
		}
		f.watched, f.err, f.absent = true, nil, false
	})
}

// ended notes that nothing is told as it happens until it is followed again.
func (f *feed) ended() {
	f.reader.change(func(*World) { f.watched = f.absent })
}

// failed notes why a feed is not followed.
func (f *feed) failed(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	err = f.explain(verb, err)
	f.reader.change(func(*World) {
		if f.err == nil || f.err.Error() != err.Error() {
			f.reader.o.Log.Warn("kubernetes objects cannot be read", "resource", f.resource.String(), "namespace", f.namespace, "err", err)
		}
		if f.err == nil {
			f.since = time.Now()
		}
		f.watched, f.missing, f.err = false, true, err
	})
}

// isAbsent notes that the API has no such kind: that says nothing of one that had
// objects.
func (f *feed) isAbsent() (absent bool) {
	if f.resource.GroupVersion != istioVersion {
		return false
	}
	f.reader.change(func(*World) {
		f.absent = len(f.objects) == 0
		absent = f.absent
	})
	return absent
}

// waitsForKind reports whether there is no such kind, which is all that can be
// known of it, and takes it for followed.
func (f *feed) waitsForKind() (waits bool) {
	f.reader.change(func(*World) {
		if waits = f.absent; waits {
			f.watched, f.err = true, nil
		}
	})
	return waits
}

// missed reports whether a watch failed before. What happened meanwhile would be
// told as if it happened now, and only a list has it found.
func (f *feed) missed() bool {
	f.reader.mu.Lock()
	defer f.reader.mu.Unlock()
	return f.err != nil && f.missing
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

// Unwrap returns what the API said.
func (f *Forbidden) Unwrap() error { return f.err }

func (f *feed) explain(verb string, err error) error {
	where := f.resource.String()
	if f.namespace != "" {
		where += " in namespace " + f.namespace
	}
	switch {
	case apierrors.IsForbidden(err):
		return &Forbidden{Resource: f.resource.String(), Namespace: f.namespace, Verb: verb, err: err}
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s %s: %w; the credentials are not accepted: they have expired, or are for another cluster", verb, where, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s %s: %w; the API no longer serves them: was the definition of the kind removed?", verb, where, err)
	}
	return fmt.Errorf("%s %s: %w", verb, where, err)
}
