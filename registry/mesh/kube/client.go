package kube

import (
	"fmt"
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

// watchedResource is a kind of object of the API.
type watchedResource struct {
	schema.GroupVersion

	name    string // plural
	kind    string
	example runtime.Object // of the kind
	cluster bool           // without a namespace
}

// String returns what RBAC calls it.
func (r watchedResource) String() string {
	if r.Group == "" {
		return r.name
	}
	return r.name + "." + r.Group
}

func (o *Options) resources() []watchedResource {
	all := []watchedResource{
		{core.SchemeGroupVersion, "services", "Service", &core.Service{}, false},
		{discovery.SchemeGroupVersion, "endpointslices", "EndpointSlice", &discovery.EndpointSlice{}, false},
	}
	if o.Pods {
		all = append(all, watchedResource{core.SchemeGroupVersion, "pods", "Pod", &core.Pod{}, false})
	}
	if o.Nodes {
		all = append(all, watchedResource{core.SchemeGroupVersion, "nodes", "Node", &core.Node{}, true})
	}
	if o.Istio {
		all = append(all, watchedResource{istioVersion, "serviceentries", "ServiceEntry", &ServiceEntry{}, false}, watchedResource{istioVersion, "workloadentries", "WorkloadEntry", &WorkloadEntry{}, false})
	}
	return all
}

// apiClients are the clients of one connection, by group and version.
type apiClients struct {
	byVersion map[schema.GroupVersion]rest.Interface
	transport *http.Transport
}

// connect returns clients over a connection of their own. client-go would share one
// among equal configurations, and a recheck requires a new one.
func (o *Options) connect() (*apiClients, error) {
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
	out := &apiClients{byVersion: make(map[schema.GroupVersion]rest.Interface), transport: transport}
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
