package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf16"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/klog/v2"

	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/registry"
)

// resource returns the API's resource of a kind of object.
func resource(kind string) schema.GroupVersionResource {
	if kind == configMap {
		return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	}
	return schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: strings.ToLower(Plural(kind))}
}

// Plural returns the name of several objects of a kind.
func Plural(kind string) string {
	return map[string]string{serviceentry.ObjectKind: "ServiceEntries", serviceentry.RuleKind: "DestinationRules"}[kind]
}

// A objectRef names an object.
type objectRef struct{ kind, namespace, name string }

func refOf(o serviceentry.Object) objectRef {
	return objectRef{o.Kind, o.Metadata.Namespace, o.Metadata.Name}
}

func (a *API) objects(r objectRef) dynamic.ResourceInterface {
	return a.client.Resource(resource(r.kind)).Namespace(r.namespace)
}

// An API is the Kubernetes API as a Store. Objects are written by server-side apply
// without force: fields of other managers are kept.
type API struct {
	client   dynamic.Interface
	metadata metadata.Interface
	lister   rest.Interface
	limit    atomic.Int64 // a kubelist.Limit
	manager  string
	versions map[string]*versionTracker // by kind of object
	changed  chan struct{}              // ready after the watch of any kind observed a change

	mu     sync.Mutex
	listed map[objectRef]listedObject // each until it is read once, or changed
}

// managerPrefix begins the field manager of every owner.
const managerPrefix = "xds-bridge/"

// NewAPI returns a store over an API server. Its field manager has the owner's name.
// The caller limits the rate of calls: the client does not.
func NewAPI(c *rest.Config, owner string) (*API, error) {
	c = rest.CopyConfig(c)
	c.QPS = -1
	c.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	lister, err := newLister(c)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	c.Timeout = 0 // a watch lasts
	objects, err := metadata.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	a := &API{
		client: client, metadata: objects, lister: lister, manager: managerPrefix + owner, listed: make(map[objectRef]listedObject),
		versions: make(map[string]*versionTracker), changed: make(chan struct{}, 1),
	}
	for _, kind := range []string{serviceentry.ObjectKind, serviceentry.RuleKind} {
		a.versions[kind] = newVersionTracker(a.changed)
	}
	return a, nil
}

// unlogged keeps the client from printing what is in its errors.
func unlogged(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

func parse(u *unstructured.Unstructured, kind string) (serviceentry.Object, error) {
	text, err := json.Marshal(u.Object)
	if err != nil {
		return serviceentry.Object{}, fmt.Errorf("%s: %w", u.GetName(), err)
	}
	o, err := parseObject(text)
	if err != nil {
		return o, err
	}
	return o, checkKind(o, kind)
}

// parseListed reads an object of a list of a kind. It may name no kind itself.
func parseListed(text []byte, kind string) (serviceentry.Object, error) {
	o, err := parseObject(text)
	if err != nil {
		return o, err
	}
	o.Kind = cmp.Or(o.Kind, kind)
	return o, checkKind(o, kind)
}

func parseObject(text []byte) (serviceentry.Object, error) {
	o, err := serviceentry.ParseObject(text)
	if err != nil {
		return o, fmt.Errorf("%w: %s cannot be read, mend or delete it: %w", registry.ErrRefused, o.Metadata.Name, err)
	}
	return o, nil
}

func checkKind(o serviceentry.Object, kind string) error {
	if o.Kind != kind {
		return fmt.Errorf("the answer is no %s but %q", kind, o.Kind)
	}
	return nil
}

// Get implements Store.
func (a *API) Get(ctx context.Context, kind, namespace, name string) (*serviceentry.Object, error) {
	ctx = unlogged(ctx)
	r := objectRef{kind, namespace, name}
	if l, ok := a.popListed(r); ok && a.versions[kind].sawListed(name, l.version) {
		if o, err := parseListed(l.text, kind); err == nil {
			return &o, nil
		}
	}
	none := a.versions[kind].none(name)
	u, err := a.objects(r).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isObject(err, name) {
		none()
		return nil, nil
	}
	if err != nil {
		return nil, explain(err, "get", r)
	}
	o, err := parse(u, kind)
	if err != nil {
		return nil, explain(err, "get", r)
	}
	a.versions[kind].saw(name, o.Metadata.ResourceVersion)
	return &o, nil
}

// isObject reports whether the object was not found, and not its kind.
func isObject(err error, name string) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Details != nil && status.ErrStatus.Details.Name == name
}

// Put implements Store.
func (a *API) Put(ctx context.Context, o serviceentry.Object) error {
	ctx = unlogged(ctx)
	r := refOf(o)
	a.popListed(r)
	defer a.versions[r.kind].begin(r.name)()
	if o.Metadata.ResourceVersion == "" {
		o.Metadata.ResourceVersion = noVersion
	}
	stored, err := a.apply(ctx, o, metav1.PatchOptions{})
	switch {
	case len(managers(err)) > 0 && o.Metadata.ResourceVersion == noVersion:
		return fmt.Errorf("%w: %w", registry.ErrConflict, err)
	case len(managers(err)) > 0, err == nil && !stored.Same(o):
		if err == nil {
			o.Metadata.ResourceVersion = stored.Metadata.ResourceVersion
		}
		if o.Metadata.ResourceVersion, err = a.adoptFields(ctx, r, o.Metadata.ResourceVersion); err != nil {
			return explain(err, "get and patch", r)
		}
		stored, err = a.apply(ctx, o, metav1.PatchOptions{})
	}
	switch {
	case err != nil:
		return explain(err, "create and patch", r)
	case !stored.Same(o):
		return fmt.Errorf("%w: another manager of fields adds to the %s: see its managedFields, and have that manager release it", registry.ErrRefused, r.kind)
	}
	a.versions[r.kind].saw(r.name, stored.Metadata.ResourceVersion)
	return nil
}

// noVersion makes an apply create an object and change none. To the API server it is no
// version.
const noVersion = "0"

// apply applies an object, and returns it as it is stored.
func (a *API) apply(ctx context.Context, o serviceentry.Object, how metav1.PatchOptions) (serviceentry.Object, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return o, fmt.Errorf("encode: %w", err)
	}
	how.FieldManager = a.manager
	u, err := a.objects(refOf(o)).Patch(ctx, o.Metadata.Name, types.ApplyYAMLPatchType, ascii(text), how)
	if err != nil {
		return o, err
	}
	return parse(u, o.Kind)
}

// ascii returns JSON as ASCII. The API server parses what is applied as YAML, in which
// some characters are line breaks.
func ascii(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch high, low := utf16.EncodeRune(r); {
		case r < 0x7f: //nolint:mnd // the last of ASCII deletes
			out = append(out, byte(r)) //nolint:gosec // of seven bits
		case r > 0xffff: //nolint:mnd // of UTF-16 two
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// adoptFields makes the fields ours that somebody wrote without server-side apply, as by
// kubectl edit, and those of a bridge that had the object before. It returns the
// object's version after that.
func (a *API) adoptFields(ctx context.Context, r objectRef, version string) (string, error) {
	objects := a.objects(r)
	u, err := objects.Get(ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if u.GetResourceVersion() != version {
		return "", registry.ErrConflict
	}
	writers, all := make(sets.Set[string]), u.GetManagedFields()
	for i, m := range all {
		if strings.HasPrefix(m.Manager, managerPrefix) && m.Manager != a.manager {
			all[i].Operation = metav1.ManagedFieldsOperationUpdate // the only one that is adopted
		}
		if all[i].Operation == metav1.ManagedFieldsOperationUpdate && m.Subresource == "" {
			writers.Insert(m.Manager)
		}
	}
	u.SetManagedFields(all)
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(u, writers, a.manager)
	if err != nil || len(patch) == 0 {
		return u.GetResourceVersion(), err
	}
	if u, err = objects.Patch(ctx, r.name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: a.manager}); err != nil {
		return "", err
	}
	return u.GetResourceVersion(), nil
}

// Try implements Store.
func (a *API) Try(ctx context.Context, kind, namespace string) error {
	const name = "preflight.xds-bridge.internal"
	o := serviceentry.Object{APIVersion: serviceentry.APIVersion, Kind: kind, Metadata: serviceentry.ObjectMeta{Name: name, Namespace: namespace}}
	if kind == serviceentry.RuleKind {
		o.Spec.Host = name
	} else {
		o.Spec = serviceentry.ObjectSpec{Hosts: []string{name}, Ports: []serviceentry.Port{{Number: 80, Name: "http", Protocol: "HTTP"}}, Resolution: "STATIC"}
	}
	if _, err := a.apply(unlogged(ctx), o, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		return explain(err, "create and patch", refOf(o))
	}
	return nil
}

// Delete implements Store.
func (a *API) Delete(ctx context.Context, o serviceentry.Object) error {
	ctx = unlogged(ctx)
	r, uid := refOf(o), types.UID(o.Metadata.UID)
	a.popListed(r)
	defer a.versions[r.kind].begin(r.name)()
	err := a.objects(r).Delete(ctx, r.name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &o.Metadata.ResourceVersion},
	})
	if err != nil && (!apierrors.IsNotFound(err) || !isObject(err, r.name)) {
		return explain(err, "delete", r)
	}
	a.versions[r.kind].sawNone(r.name)
	return nil
}
