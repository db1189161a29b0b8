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

// watchedResource is a kind of object that is listed and watched.
type watchedResource struct {
	schema.GroupVersion

	plural          string
	kind            string
	example         runtime.Object // an empty object of the kind
	isClusterScoped bool
}

// String returns the name of the resource in RBAC.
func (r watchedResource) String() string {
	if r.Group == "" {
		return r.plural
	}
	return r.plural + "." + r.Group
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
		all = append(all,
			watchedResource{istioVersion, "serviceentries", "ServiceEntry", &ServiceEntry{}, false},
			watchedResource{istioVersion, "workloadentries", "WorkloadEntry", &WorkloadEntry{}, false})
	}
	return all
}

// apiClients has the clients of one connection, by group and version.
type apiClients struct {
	byVersion map[schema.GroupVersion]rest.Interface
	transport *http.Transport
}

// newClients returns clients over a new connection. client-go itself would share a
// connection between equal configurations, but Recheck requires a new one.
func (o *Options) newClients() (*apiClients, error) {
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
	transport := utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: tls, DialContext: dialer.DialContext, MaxIdleConnsPerHost: 25,
	})
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
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := &http.Client{Transport: wrapped, CheckRedirect: noRedirect}
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
