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

// resourceOf returns the API's resource of a kind of object.
func resourceOf(kind string) schema.GroupVersionResource {
	if kind == configMap {
		return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	}
	return schema.GroupVersionResource{
		Group: "networking.istio.io", Version: "v1", Resource: strings.ToLower(Plural(kind)),
	}
}

// Plural returns the plural of a kind of object, such as ServiceEntries.
func Plural(kind string) string {
	return map[string]string{
		serviceentry.ObjectKind: "ServiceEntries", serviceentry.RuleKind: "DestinationRules",
	}[kind]
}

// An objectRef identifies an object.
type objectRef struct{ kind, namespace, name string }

func refOf(o serviceentry.Object) objectRef {
	return objectRef{o.Kind, o.Metadata.Namespace, o.Metadata.Name}
}

func (a *API) clientFor(r objectRef) dynamic.ResourceInterface {
	return a.client.Resource(resourceOf(r.kind)).Namespace(r.namespace)
}

// An API is a Store in the Kubernetes API. It writes objects by server-side apply without
// force, so that it never changes fields of other managers.
type API struct {
	// Immutable.
	client   dynamic.Interface
	metadata metadata.Interface
	lister   rest.Interface
	manager  string
	versions map[string]*versionTracker // by kind of object
	changed  chan struct{}              // ready after the watch of any kind observed a change

	pageLimit atomic.Int64 // a kubelist.Limit

	// Guarded by mu. listed has objects of the last lists, each until it is read or written.
	mu     sync.Mutex
	listed map[objectRef]listedObject
}

// managerPrefix is the prefix of the field manager of every owner.
const managerPrefix = "xds-bridge/"

// NewAPI returns a store over an API server. Its field manager has the owner's name. The
// client does not limit the rate of calls; the caller has to.
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
	c.Timeout = 0 // a watch has no end
	objects, err := metadata.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	a := &API{
		client: client, metadata: objects, lister: lister, manager: managerPrefix + owner,
		listed: make(map[objectRef]listedObject), versions: make(map[string]*versionTracker), changed: make(chan struct{}, 1),
	}
	for _, kind := range []string{serviceentry.ObjectKind, serviceentry.RuleKind} {
		a.versions[kind] = newVersionTracker(a.changed)
	}
	return a, nil
}

// withoutLog returns a context with which the client does not log its errors.
func withoutLog(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

// parseUnstructured parses an object that the dynamic client returned.
func parseUnstructured(u *unstructured.Unstructured, kind string) (serviceentry.Object, error) {
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

// parseListed parses an object in a list of a kind. The object may leave out its own kind.
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
		return o, fmt.Errorf("%w: %s cannot be parsed; repair or delete it: %w", registry.ErrRefused, o.Metadata.Name, err)
	}
	return o, nil
}

func checkKind(o serviceentry.Object, kind string) error {
	if o.Kind != kind {
		return fmt.Errorf("expected a %s, got %q", kind, o.Kind)
	}
	return nil
}

// Get implements Store.
func (a *API) Get(ctx context.Context, kind, namespace, name string) (*serviceentry.Object, error) {
	ctx = withoutLog(ctx)
	r := objectRef{kind, namespace, name}
	if l, ok := a.popListed(r); ok && a.versions[kind].recordListed(name, l.version) {
		if o, err := parseListed(l.text, kind); err == nil {
			return &o, nil
		}
	}
	recordAbsent := a.versions[kind].beginRead(name)
	u, err := a.clientFor(r).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isObject(err, name) {
		recordAbsent()
		return nil, nil
	}
	if err != nil {
		return nil, explain(err, "get", r)
	}
	o, err := parseUnstructured(u, kind)
	if err != nil {
		return nil, explain(err, "get", r)
	}
	a.versions[kind].recordKnown(name, o.Metadata.ResourceVersion)
	return &o, nil
}

// isObject reports whether a not-found error is about the object, and not about its kind or
// namespace.
func isObject(err error, name string) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Details != nil && status.ErrStatus.Details.Name == name
}

// Put implements Store.
func (a *API) Put(ctx context.Context, o serviceentry.Object) error {
	ctx = withoutLog(ctx)
	r := refOf(o)
	a.popListed(r)
	defer a.versions[r.kind].beginWrite(r.name)()
	if o.Metadata.ResourceVersion == "" {
		o.Metadata.ResourceVersion = noVersion
	}
	stored, err := a.apply(ctx, o, metav1.PatchOptions{})
	switch {
	case len(conflictingManagers(err)) > 0 && o.Metadata.ResourceVersion == noVersion:
		return fmt.Errorf("%w: %w", registry.ErrConflict, err)
	case len(conflictingManagers(err)) > 0, err == nil && !stored.Same(o):
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
		return fmt.Errorf("%w: another field manager adds fields to the %s; see its managedFields, and remove them there",
			registry.ErrRefused, r.kind)
	}
	a.versions[r.kind].recordKnown(r.name, stored.Metadata.ResourceVersion)
	return nil
}

// noVersion makes an apply fail if the object exists. It is not a valid version to the API
// server.
const noVersion = "0"

// apply applies an object, and returns the stored object.
func (a *API) apply(ctx context.Context, o serviceentry.Object, how metav1.PatchOptions) (serviceentry.Object, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return o, fmt.Errorf("encode: %w", err)
	}
	how.FieldManager = a.manager
	u, err := a.clientFor(refOf(o)).Patch(ctx, o.Metadata.Name, types.ApplyYAMLPatchType, ascii(text), how)
	if err != nil {
		return o, err
	}
	return parseUnstructured(u, o.Kind)
}

// ascii returns JSON as ASCII, because the API server parses an applied object as YAML, in
// which some other characters are line breaks.
func ascii(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch high, low := utf16.EncodeRune(r); {
		case r < 0x7f: //nolint:mnd // below DEL
			out = append(out, byte(r)) //nolint:gosec // 7 bits
		case r > 0xffff: //nolint:mnd // needs a surrogate pair
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// adoptFields transfers fields to our manager: those written without server-side apply, as
// by kubectl edit, and those of a bridge that owned the object before. It returns the
// object's new version.
func (a *API) adoptFields(ctx context.Context, r objectRef, version string) (string, error) {
	objects := a.clientFor(r)
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
			all[i].Operation = metav1.ManagedFieldsOperationUpdate // UpgradeManagedFieldsPatch adopts no other
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
	how := metav1.PatchOptions{FieldManager: a.manager}
	if u, err = objects.Patch(ctx, r.name, types.JSONPatchType, patch, how); err != nil {
		return "", err
	}
	return u.GetResourceVersion(), nil
}

// Try implements Store.
func (a *API) Try(ctx context.Context, kind, namespace string) error {
	const name = "preflight.xds-bridge.internal"
	o := serviceentry.Object{
		APIVersion: serviceentry.APIVersion, Kind: kind,
		Metadata: serviceentry.ObjectMeta{Name: name, Namespace: namespace},
	}
	if kind == serviceentry.RuleKind {
		o.Spec.Host = name
	} else {
		port := serviceentry.Port{Number: 80, Name: "http", Protocol: "HTTP"}
		o.Spec = serviceentry.ObjectSpec{Hosts: []string{name}, Ports: []serviceentry.Port{port}, Resolution: "STATIC"}
	}
	if _, err := a.apply(withoutLog(ctx), o, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		return explain(err, "create and patch", refOf(o))
	}
	return nil
}

// Delete implements Store.
func (a *API) Delete(ctx context.Context, o serviceentry.Object) error {
	ctx = withoutLog(ctx)
	r, uid := refOf(o), types.UID(o.Metadata.UID)
	a.popListed(r)
	defer a.versions[r.kind].beginWrite(r.name)()
	err := a.clientFor(r).Delete(ctx, r.name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &o.Metadata.ResourceVersion},
	})
	if err != nil && (!apierrors.IsNotFound(err) || !isObject(err, r.name)) {
		return explain(err, "delete", r)
	}
	a.versions[r.kind].recordDeleted(r.name)
	return nil
}
