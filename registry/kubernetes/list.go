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

// A listedObject is an object in a list, as JSON: an Object would be several times as large.
type listedObject struct {
	version string
	text    []byte
	at      time.Time
}

// maxListedBytes bounds the listed objects that are kept. Others are read one by one.
const maxListedBytes = 32 << 20

// newLister returns a client for lists, whose responses are read as streams.
func newLister(c *rest.Config) (rest.Interface, error) {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"}) // errors are v1.Status
	c = rest.CopyConfig(c)
	group := resourceOf(serviceentry.ObjectKind).GroupVersion()
	c.GroupVersion, c.APIPath = &group, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(s).WithoutConversion()
	return rest.RESTClientFor(c)
}

// A listing is a list while it is read.
type listing struct {
	kind, namespace string
	objects         []serviceentry.Object
	listed          map[objectRef]listedObject
	listedBytes     int // size of listed
}

// List implements Store.
func (a *API) List(ctx context.Context, kind, namespace string) ([]serviceentry.Object, error) {
	ctx = withoutLog(ctx)
	l := listing{kind: kind, namespace: namespace}
	if err := a.listPages(ctx, &l); err != nil {
		return nil, explain(err, "list", objectRef{kind: kind, namespace: namespace})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.listed, func(r objectRef, _ listedObject) bool {
		return r.kind == kind && r.namespace == namespace
	})
	maps.Copy(a.listed, l.listed)
	return l.objects, nil
}

// listPages reads all pages of a list. It reads a page that is too large again in smaller
// pages, and begins once more, without pages, if the list expired meanwhile.
func (a *API) listPages(ctx context.Context, l *listing) error {
	l.reset()
	limit, from, paged := kubelist.Limit(a.pageLimit.Load()), "", true
	for {
		before, size := len(l.objects), l.listedBytes
		o := metav1.ListOptions{Continue: from}
		if paged {
			o.Limit = limit.Value()
		}
		page, err := a.listPage(ctx, l, o)
		switch smaller, may := limit.Reduced(int64(len(l.objects) - before)); {
		case errors.Is(err, kubelist.ErrTooLarge) && paged && may:
			limit = smaller
			a.pageLimit.Store(int64(limit))
			l.objects, l.listedBytes = l.objects[:before], size
			continue
		case apierrors.IsResourceExpired(err) && from != "":
			l.reset()
			from, paged = "", false // a list without pages cannot expire
			continue
		case err != nil:
			return err
		}
		if from = page.Continue; from == "" {
			return nil
		}
	}
}

func (l *listing) reset() {
	l.objects, l.listed, l.listedBytes = nil, make(map[objectRef]listedObject), 0
}

// listPage reads one page, and adds its objects to the listing.
func (a *API) listPage(ctx context.Context, l *listing, o metav1.ListOptions) (kubelist.Page, error) {
	request := a.lister.Get().Namespace(l.namespace).Resource(resourceOf(l.kind).Resource)
	body, err := request.VersionedParams(&o, metav1.ParameterCodec).Stream(ctx)
	if err != nil {
		return kubelist.Page{}, err
	}
	defer body.Close()
	at := time.Now()
	return kubelist.Read(body, l.kind, func(text json.RawMessage) error { return l.addObject(text, at) })
}

// addObject adds an object without its endpoints, which callers of List do not need. An
// object that cannot be parsed gets only its name: Get returns the error.
func (l *listing) addObject(text []byte, at time.Time) error {
	o, err := parseListed(text, l.kind)
	if err != nil {
		var named struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if nameless := json.Unmarshal(text, &named); nameless != nil || named.Metadata.Name == "" {
			return fmt.Errorf("object without a name: %w", err)
		}
		o = serviceentry.Object{Metadata: serviceentry.ObjectMeta{Namespace: l.namespace, Name: named.Metadata.Name}}
		l.objects = append(l.objects, o)
		return nil
	}
	o.Spec.Endpoints = nil
	l.objects = append(l.objects, o)
	if l.listedBytes+len(text) <= maxListedBytes {
		l.listedBytes += len(text)
		l.listed[objectRef{l.kind, l.namespace, o.Metadata.Name}] = listedObject{o.Metadata.ResourceVersion, text, at}
	}
	return nil
}

// maxListedAge is how long Get may return an object from a list. A bridge that starts reads
// all groups right after it listed them.
const maxListedAge = 30 * time.Second

// popListed returns an object from a list of the last maxListedAge, and removes it.
func (a *API) popListed(r objectRef) (listedObject, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.listed[r]
	delete(a.listed, r)
	if ok && time.Since(o.at) >= maxListedAge { // then objects that are never read are too old as well
		maps.DeleteFunc(a.listed, func(_ objectRef, o listedObject) bool { return time.Since(o.at) >= maxListedAge })
		return listedObject{}, false
	}
	return o, ok
}
