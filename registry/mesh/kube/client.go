package kube

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// resource is a kind of object of the API.
type resource struct {
	schema.GroupVersion

	name    string         // plural
	example runtime.Object // of the kind
	cluster bool           // without a namespace
}

// String returns what RBAC calls it.
func (r resource) String() string {
	if r.Group == "" {
		return r.name
	}
	return r.name + "." + r.Group
}

func (o *Options) resources() []resource {
	all := []resource{
		{core.SchemeGroupVersion, "services", &core.Service{}, false},
		{discovery.SchemeGroupVersion, "endpointslices", &discovery.EndpointSlice{}, false},
	}
	if o.Pods {
		all = append(all, resource{core.SchemeGroupVersion, "pods", &core.Pod{}, false})
	}
	if o.Nodes {
		all = append(all, resource{core.SchemeGroupVersion, "nodes", &core.Node{}, true})
	}
	if o.Istio {
		all = append(all, resource{istioVersion, "serviceentries", &ServiceEntry{}, false}, resource{istioVersion, "workloadentries", &WorkloadEntry{}, false})
	}
	return all
}

// clients are the clients of one connection, by group and version.
type clients struct {
	byVersion map[schema.GroupVersion]rest.Interface
	transport *http.Transport
}

// connect returns clients over a connection of their own. client-go would share one
// among equal configurations, and a recheck requires a new one.
func (o *Options) connect() (*clients, error) {
	c := rest.CopyConfig(o.Config)
	c.Timeout = 0 // a watch has no end
	c.QPS = -1    // the server limits the rate
	c.WarningHandler = rest.NoWarnings{}
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme()).WithoutConversion()
	tls, err := rest.TLSConfigFor(c)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	transport := utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: tls, DialContext: dialer.DialContext, MaxIdleConnsPerHost: 25})
	if c.Dial != nil {
		transport.DialContext = c.Dial
	}
	if c.Proxy != nil {
		transport.Proxy = c.Proxy
	}
	wrapped, err := rest.HTTPWrappersForConfig(c, transport)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	out := &clients{byVersion: make(map[schema.GroupVersion]rest.Interface), transport: transport}
	client := &http.Client{Transport: wrapped, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, r := range o.resources() {
		one := rest.CopyConfig(c)
		one.GroupVersion, one.APIPath = &r.GroupVersion, "/apis"
		if r.Group == "" {
			one.APIPath = "/api"
		}
		if out.byVersion[r.GroupVersion], err = rest.RESTClientForConfigAndClient(one, client); err != nil {
			return nil, fmt.Errorf("kubernetes: %w", err)
		}
	}
	return out, nil
}

// Bound returns a wrapper for rest.Config.Wrap that refuses responses of more than so
// many bytes; 0: no limit.
func Bound(most int64) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return bounded{next, most} }
}

// bounded refuses responses that are too large, except those to a watch: client-go
// limits each of its events.
type bounded struct {
	http.RoundTripper

	max int64
}

// ErrTooLarge is why a response is not read to its end.
var ErrTooLarge = errors.New("the response is larger than limits.maxReceive allows")

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil && b.max > 0 && r.URL.Query().Get("watch") == "" {
		response.Body = &boundedBody{response.Body, b.max}
	}
	return response, err //nolint:wrapcheck // a wrapper adds nothing
}

type boundedBody struct {
	io.ReadCloser

	left int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, ErrTooLarge
	}
	return n, err //nolint:wrapcheck // io.EOF must not be wrapped
}
