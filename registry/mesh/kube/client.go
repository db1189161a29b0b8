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

// resource is a kind of object as the API has it.
type resource struct {
	schema.GroupVersion

	name    string         // plural
	example runtime.Object // of the kind
	cluster bool           // in no namespace
}

// String returns what RBAC calls it.
func (r resource) String() string {
	if r.Group == "" {
		return r.name
	}
	return r.name + "." + r.Group
}

// resources returns what is read.
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

// clients are those of one connection, by group and version.
type clients struct {
	byVersion map[schema.GroupVersion]rest.Interface
	transport *http.Transport
}

// connect returns clients over a connection of their own: client-go would share it
// with all that are configured alike, and a new one is to tell what an old one
// cannot.
func (o *Options) connect() (*clients, error) {
	c := rest.CopyConfig(o.Config)
	c.Timeout = 0 // a watch takes as long as it takes
	c.QPS = -1    // the server says how much is too much
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
	wrapped, err := rest.HTTPWrappersForConfig(c, bounded{transport, o.MaxReceive})
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

// Bound returns what has a client refuse answers of more than so many bytes; 0: no
// bound. It is for rest.Config.Wrap.
func Bound(most int64) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return bounded{next, most} }
}

// bounded refuses answers that are too large. Those to a watch have no end, and
// client-go bounds each event in them.
type bounded struct {
	http.RoundTripper

	max int64
}

// ErrTooLarge is why an answer is not read to its end.
var ErrTooLarge = errors.New("the answer is larger than limits.maxReceive allows")

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil && b.max > 0 && r.URL.Query().Get("watch") == "" {
		answer.Body = &boundedBody{answer.Body, b.max}
	}
	return answer, err //nolint:wrapcheck // an http.RoundTripper hands on what it is told
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
	return n, err //nolint:wrapcheck // an io.Reader hands on io.EOF as it is
}
