package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry/kubelist"
)

// A listedObject is an object as a list reported it, in JSON: as an Object it would be
// several times as large.
type listedObject struct {
	version string
	text    []byte
	at      time.Time
}

// maxListed bounds the bytes of listed objects. Others are read one by one.
const maxListed = 32 << 20

// newLister returns a client for lists, whose answers are read as streams.
func newLister(c *rest.Config) (rest.Interface, error) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"}) // what errors are
	c = rest.CopyConfig(c)
	group := resource(serviceentry.ObjectKind).GroupVersion()
	c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &group, "/apis", serializer.NewCodecFactory(s).WithoutConversion()
	return rest.RESTClientFor(c)
}

// A listing is one list while it is read.
type listing struct {
	kind, namespace string
	objects         []serviceentry.Object
	listed          map[objectRef]listedObject
	size            int // of listed
}

// List implements Store.
func (a *API) List(ctx context.Context, kind, namespace string) ([]serviceentry.Object, error) {
	ctx = unlogged(ctx)
	l := listing{kind: kind, namespace: namespace}
	if err := a.pages(ctx, &l); err != nil {
		return nil, explain(err, "list", objectRef{kind: kind, namespace: namespace})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.listed, func(r objectRef, _ listedObject) bool { return r.kind == kind && r.namespace == namespace })
	maps.Copy(a.listed, l.listed)
	return l.objects, nil
}

// pages reads all pages of a list, and all once more if a page expired meanwhile. A page
// that is too large is read again in parts.
func (a *API) pages(ctx context.Context, l *listing) error {
	l.begin()
	limit, from, paged := kubelist.Limit(a.limit.Load()), "", true
	for {
		before, size := len(l.objects), l.size
		o := metav1.ListOptions{Continue: from}
		if paged {
			o.Limit = limit.Value()
		}
		page, err := a.page(ctx, l, o)
		switch smaller, may := limit.Reduced(int64(len(l.objects) - before)); {
		case errors.Is(err, kubelist.ErrTooLarge) && paged && may:
			limit = smaller
			a.limit.Store(int64(limit))
			l.objects, l.size = l.objects[:before], size
			continue
		case apierrors.IsResourceExpired(err) && from != "":
			l.begin()
			from, paged = "", false // in one page, which cannot expire
			continue
		case err != nil:
			return err
		}
		if from = page.Continue; from == "" {
			return nil
		}
	}
}

func (l *listing) begin() { l.objects, l.listed, l.size = nil, make(map[objectRef]listedObject), 0 }

func (a *API) page(ctx context.Context, l *listing, o metav1.ListOptions) (kubelist.Page, error) {
	body, err := a.lister.Get().Namespace(l.namespace).Resource(resource(l.kind).Resource).VersionedParams(&o, metav1.ParameterCodec).Stream(ctx)
	if err != nil {
		return kubelist.Page{}, err
	}
	defer body.Close()
	at := time.Now()
	return kubelist.Read(body, l.kind, func(text json.RawMessage) error { return l.add(text, at) })
}

// add adds an object, without its endpoints, which no caller of List asks for. Of one that
// cannot be read it adds the name: Get returns the error.
func (l *listing) add(text []byte, at time.Time) error {
	o, err := parseListed(text, l.kind)
	if err != nil {
		var named struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if nameless := json.Unmarshal(text, &named); nameless != nil || named.Metadata.Name == "" {
			return fmt.Errorf("an object of the list has no name: %w", err)
		}
		l.objects = append(l.objects, serviceentry.Object{Metadata: serviceentry.ObjectMeta{Namespace: l.namespace, Name: named.Metadata.Name}})
		return nil
	}
	o.Spec.Endpoints = nil
	l.objects = append(l.objects, o)
	if l.size+len(text) <= maxListed {
		l.size += len(text)
		l.listed[objectRef{l.kind, l.namespace, o.Metadata.Name}] = listedObject{o.Metadata.ResourceVersion, text, at}
	}
	return nil
}

// fresh is how long Get may return an object as it was listed. The first reading of
// all groups follows a list.
const fresh = 30 * time.Second

// popListed returns an object as it was listed just now, once.
func (a *API) popListed(r objectRef) (listedObject, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.listed[r]
	delete(a.listed, r)
	if ok && time.Since(o.at) >= fresh { // those that nobody reads are of the same age
		maps.DeleteFunc(a.listed, func(_ objectRef, o listedObject) bool { return time.Since(o.at) >= fresh })
		return listedObject{}, false
	}
	return o, ok
}
