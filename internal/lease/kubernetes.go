package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Kubernetes keeps the record in an annotation of a Lease object. It uses no
// typed client: that links every type of Kubernetes, 17 MB instead of 4.
type Kubernetes struct {
	config          rest.Config
	namespace, name string
}

const annotation = "xds-bridge/replicas"

// NewKubernetes returns a store over the Lease object of a name. Of the
// configuration the files of certificates and of the token are read again for
// every request.
func NewKubernetes(c rest.Config, namespace, name string) *Kubernetes {
	scheme := runtime.NewScheme()
	_ = coordination.AddToScheme(scheme) // it is empty, so that nothing fails
	c.APIPath, c.GroupVersion = "/apis", &coordination.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.WarningHandler = rest.NoWarnings{}
	return &Kubernetes{c, namespace, name}
}

// Load implements Store.
func (k *Kubernetes) Load(ctx context.Context) ([]byte, string, error) {
	l, err := k.do(ctx, func(c rest.Interface) *rest.Request { return c.Get().Name(k.name) })
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	return []byte(l.Annotations[annotation]), l.ResourceVersion, err
}

// Save implements Store. The spec is for people: nothing is decided by it.
func (k *Kubernetes) Save(ctx context.Context, text []byte, version string) error {
	now := time.Now()
	r, _, _ := parse(text, now) // it is one of ours
	seconds := max(int32(r.Members[r.Leader].TTL/1000), 1)
	l := coordination.Lease{
		ObjectMeta: meta.ObjectMeta{Name: k.name, ResourceVersion: version, Annotations: map[string]string{annotation: string(text)}},
		Spec:       coordination.LeaseSpec{HolderIdentity: &r.Leader, LeaseDurationSeconds: &seconds, RenewTime: &meta.MicroTime{Time: now}},
	}
	_, err := k.do(ctx, func(c rest.Interface) *rest.Request {
		if version == "" {
			return c.Post().Body(&l)
		}
		patch, _ := json.Marshal(l) // no update: the Roles that users have allow patch
		return c.Patch(types.MergePatchType).Name(k.name).Body(patch)
	})
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) && version != "" {
		return fmt.Errorf("lease %s/%s: %w", k.namespace, k.name, registry.ErrConflict)
	}
	return err
}

// do makes a request by a client of its own, which reads certificates and token
// anew; client-go keeps the connections. Redirects are not followed: the token is
// for this server alone.
func (k *Kubernetes) do(ctx context.Context, request func(rest.Interface) *rest.Request) (*coordination.Lease, error) {
	l := &coordination.Lease{}
	transport, err := rest.TransportFor(&k.config)
	if err != nil {
		return l, fmt.Errorf("lease: %w", err)
	}
	c, err := rest.RESTClientForConfigAndClient(&k.config, &http.Client{
		Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	if err != nil {
		return l, fmt.Errorf("lease: %w", err)
	}
	ctx = klog.NewContext(ctx, klog.Logger{}) // what it would print is in the error
	err = request(c).Namespace(k.namespace).Resource("leases").Do(ctx).Into(l)
	switch reason := apierrors.ReasonForError(err); {
	case err == nil:
		return l, nil
	case reason == meta.StatusReasonUnauthorized:
		err = fmt.Errorf("%w; the token in %s is not accepted: it has expired, or is for another cluster or another audience",
			err, k.config.BearerTokenFile)
	case reason == meta.StatusReasonUnknown: // nothing that Kubernetes says
		utilnet.CloseIdleConnectionsFor(transport) // the connection may lead nowhere
	}
	return l, fmt.Errorf("lease %s/%s: %w", k.namespace, k.name, err)
}
