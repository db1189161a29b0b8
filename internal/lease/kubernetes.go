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

// Kubernetes stores the record in an annotation of a Lease object. It does not use the
// typed client, which links every type of Kubernetes: 17 MB instead of 4.
type Kubernetes struct {
	config          rest.Config
	namespace, name string
}

const annotation = "xds-bridge/replicas"

// NewKubernetes returns a store for a Lease object. The files of certificates and of the
// token that the configuration names are read again for every request.
func NewKubernetes(c rest.Config, namespace, name string) *Kubernetes {
	scheme := runtime.NewScheme()
	_ = coordination.AddToScheme(scheme) // cannot fail for an empty scheme
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

// Save implements Store. The spec is only for readers of the object; replicas do not use
// it.
func (k *Kubernetes) Save(ctx context.Context, text []byte, version string) error {
	now := time.Now()
	r, _, _ := parseRecord(text, now) // cannot fail for our own record
	seconds := max(int32(r.Members[r.Leader].TTL/1000), 1)
	l := coordination.Lease{
		ObjectMeta: meta.ObjectMeta{
			Name: k.name, ResourceVersion: version, Annotations: map[string]string{annotation: string(text)},
		},
		Spec: coordination.LeaseSpec{
			HolderIdentity: &r.Leader, LeaseDurationSeconds: &seconds, RenewTime: &meta.MicroTime{Time: now},
		},
	}
	_, err := k.do(ctx, func(c rest.Interface) *rest.Request {
		if version == "" {
			return c.Post().Body(&l)
		}
		patch, _ := json.Marshal(l) // existing Roles of users allow patch, but not update
		return c.Patch(types.MergePatchType).Name(k.name).Body(patch)
	})
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) && version != "" {
		return fmt.Errorf("lease %s/%s: %w", k.namespace, k.name, registry.ErrConflict)
	}
	return err
}

// do sends a request with a new client, which reads certificates and token again.
// client-go keeps the connections. Redirects are not followed, because the token is only
// for this server.
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
	ctx = klog.NewContext(ctx, klog.Logger{}) // log nothing; the error has the details
	err = request(c).Namespace(k.namespace).Resource("leases").Do(ctx).Into(l)
	switch reason := apierrors.ReasonForError(err); {
	case err == nil:
		return l, nil
	case reason == meta.StatusReasonUnauthorized:
		err = fmt.Errorf("%w; the token in %s was rejected: it has expired, or is for another cluster or audience",
			err, k.config.BearerTokenFile)
	case reason == meta.StatusReasonUnknown: // not an answer of Kubernetes
		utilnet.CloseIdleConnectionsFor(transport) // the connection may be broken
	}
	return l, fmt.Errorf("lease %s/%s: %w", k.namespace, k.name, err)
}
