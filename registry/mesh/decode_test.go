package mesh_test

import (
	"math"
	"net/netip"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

const greeter = "outbound|20880||greeter.shop.svc.cluster.local"

func loadOf(name string, hosts ...string) *endpointv3.ClusterLoadAssignment {
	var all []*endpointv3.LbEndpoint
	for _, h := range hosts {
		all = append(all, endpoint(h, 1))
	}
	return load(name, all...)
}

func TestDecode_OtherClusters(t *testing.T) {
	for name, reported := range map[string]bool{
		"BlackHoleCluster": false, "PassthroughCluster": false, "InboundPassthroughCluster": false,
		"inbound|80||": false, "x": false, "": false, "agent": false, "a|b|c|d|e": false,
		"outbound|0||a.b": true, "outbound|70000||a.b": true, "outbound|80||": true, "outbound|80|": true, "outbound": true,
		"outbound|80||a b": true, "outbound|80||../../x": true, "outbound|80||\x1b[31m": true,
	} {
		t.Run(name, func(t *testing.T) {
			v := emptyInput()
			v.Clusters[name] = decodeCluster(t, plain(t), edsCluster(name)) // no error: it would be rejected for ever
			n := everything(t)
			j := n.Join(v)
			expectNames(t, j)
			if reason := j.Skipped[name]; (reason != "") != reported || strings.ContainsAny(reason, "\x1b") {
				t.Errorf("Skipped[%s] = %q, want a printable reason: %v", name, reason, reported)
			}
			if len(j.EDSNames) != 0 {
				t.Errorf("EDSNames = %v, want none", j.EDSNames)
			}
		})
	}
}

func TestKindsOfClusters(t *testing.T) {
	inline := func(kind clusterv3.Cluster_DiscoveryType, hosts ...string) *clusterv3.Cluster {
		c := edsCluster(greeter)
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: kind}
		c.EdsClusterConfig, c.LoadAssignment = nil, loadOf(greeter, hosts...)
		return c
	}
	renamed := edsCluster(greeter)
	renamed.EdsClusterConfig.ServiceName = "other"
	custom := func(kind string) *clusterv3.Cluster {
		c := inline(clusterv3.Cluster_STATIC)
		c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{Name: kind}}
		return c
	}
	for name, tt := range map[string]struct {
		cluster   *clusterv3.Cluster
		needed    string
		addresses []string
		unknown   string
	}{
		"STRICT_DNS has its host names":              {cluster: inline(clusterv3.Cluster_STRICT_DNS, "A.example.com."), addresses: []string{"a.example.com:1"}},
		"LOGICAL_DNS has its host names":             {cluster: inline(clusterv3.Cluster_LOGICAL_DNS, "b.example.com"), addresses: []string{"b.example.com:1"}},
		"STATIC has its addresses":                   {cluster: inline(clusterv3.Cluster_STATIC, "10.0.0.1"), addresses: []string{"10.0.0.1:1"}},
		"ORIGINAL_DST is known and has no endpoints": {cluster: inline(clusterv3.Cluster_ORIGINAL_DST), unknown: "router"},
		"EDS is requested by service_name":           {cluster: renamed, needed: "other", addresses: []string{"10.0.0.9:1"}},
		"a kind that does not exist":                 {cluster: inline(99), unknown: "unsupported"},
		"a kind of an extension":                     {cluster: custom("envoy.clusters.dns"), unknown: "unsupported"},
		"names that the proxy resolves":              {cluster: custom("envoy.clusters.dynamic_forward_proxy")},
	} {
		t.Run(name, func(t *testing.T) {
			v := emptyInput()
			v.Clusters[greeter] = decodeCluster(t, plain(t), tt.cluster)
			v.Assignments["other"] = decodeAssignment(t, plain(t), loadOf("other", "10.0.0.9"))
			n := everything(t)
			j := n.Join(v)
			expectNames(t, j, "greeter.shop.svc.cluster.local:20880")
			expectAddresses(t, j.Services[0], tt.addresses...)
			if _, ok := j.EDSNames[tt.needed]; ok != (tt.needed != "") || len(j.EDSNames) > 1 {
				t.Errorf("EDSNames = %v, want only %q", j.EDSNames, tt.needed)
			}
			err := j.Unknown["greeter.shop.svc.cluster.local:20880"]
			if (err != nil) != (tt.unknown != "") || err != nil && !strings.Contains(err.Error(), tt.unknown) {
				t.Errorf("unknown = %v, want %q", err, tt.unknown)
			}
			if reason := j.Skipped["greeter.shop.svc.cluster.local:20880"]; !strings.Contains(reason, tt.unknown) {
				t.Errorf("skipped = %q, want %q", reason, tt.unknown)
			}
		})
	}
}

// TestDecode_DrainingDuplicate: of several pods with one address, as on the
// network of a node while one replaces the other, whichever may be offered
// counts, whatever their names.
func TestDecode_DrainingDuplicate(t *testing.T) {
	pod := func(name string, h corev3.HealthStatus) *endpointv3.LbEndpoint {
		return endpoint("10.0.0.1", 80, health(h), meta("istio", "workload", name+";shop;app;;Kubernetes"))
	}
	for name, h := range map[string][2]corev3.HealthStatus{
		"draining first": {corev3.HealthStatus_DRAINING, corev3.HealthStatus_HEALTHY},
		"draining last":  {corev3.HealthStatus_HEALTHY, corev3.HealthStatus_DRAINING},
	} {
		t.Run(name, func(t *testing.T) {
			a := decodeAssignment(t, plain(t), load("x", pod("app-a", h[0]), pod("app-b", h[1])))
			if len(a.Endpoints) != 1 || !a.Endpoints[0].Health.Offered() {
				t.Errorf("endpoints = %+v, want one that is offered", a.Endpoints)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	for status, offered := range map[corev3.HealthStatus]bool{
		corev3.HealthStatus_UNKNOWN: true, corev3.HealthStatus_HEALTHY: true, corev3.HealthStatus_DEGRADED: true,
		corev3.HealthStatus_UNHEALTHY: false, corev3.HealthStatus_DRAINING: false, corev3.HealthStatus_TIMEOUT: false, 77: false,
	} {
		t.Run(status.String(), func(t *testing.T) {
			a := decodeAssignment(t, plain(t), load(greeter, endpoint("10.0.0.1", 1, health(status))))
			if len(a.Endpoints) != 1 || a.Endpoints[0].Health.Offered() != offered {
				t.Errorf("endpoints = %+v, want one, offered: %v", a.Endpoints, offered)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	internal := func(id string) *corev3.Address {
		return &corev3.Address{Address: &corev3.Address_EnvoyInternalAddress{EnvoyInternalAddress: &corev3.EnvoyInternalAddress{
			AddressNameSpecifier: &corev3.EnvoyInternalAddress_ServerListenerName{ServerListenerName: "connect_originate"}, EndpointId: id,
		}}}
	}
	original := meta("envoy.filters.listener.original_dst", "local", "10.0.0.7:15")
	for name, tt := range map[string]struct {
		endpoint *endpointv3.LbEndpoint
		want     string // empty: left out
		reason   string
	}{
		"IPv4":                                  {endpoint: endpoint("10.0.0.1", 1), want: "10.0.0.1:1"},
		"IPv6 has no brackets in its host":      {endpoint: endpoint("2001:DB8:0::1", 1), want: "[2001:db8::1]:1"},
		"IPv4 in IPv6 is IPv4":                  {endpoint: endpoint("::ffff:10.0.0.1", 1), want: "10.0.0.1:1"},
		"a host name":                           {endpoint: endpoint("Greeter.Example.com", 1), want: "greeter.example.com:1"},
		"a unix socket":                         {endpoint: at(&corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/x"}}}), reason: "unix socket"},
		"HBONE has its address in endpoint_id":  {endpoint: at(internal("10.0.0.5:8080"), original), want: "10.0.0.5:8080"},
		"HBONE has its address in original_dst": {endpoint: at(internal(""), original), want: "10.0.0.7:15"},
		"HBONE without an address":              {endpoint: at(internal("waypoint")), reason: "tunnelled"},
		"no address at all":                     {endpoint: at(nil), reason: "no address"},
		"an endpoint that is named elsewhere":   {endpoint: &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_EndpointName{EndpointName: "x"}}, reason: "no address"},
		"port 0":                                {endpoint: endpoint("10.0.0.1", 0), reason: "port"},
		"port 70000":                            {endpoint: endpoint("10.0.0.1", 70000), reason: "port"},
		"0.0.0.0":                               {endpoint: endpoint("0.0.0.0", 1), reason: "unspecified"},
		"::":                                    {endpoint: endpoint("::", 1), reason: "unspecified"},
		"127.0.0.1":                             {endpoint: endpoint("127.0.0.1", 1), reason: "loopback"},
		"::1":                                   {endpoint: endpoint("::1", 1), reason: "loopback"},
		"the metadata service":                  {endpoint: endpoint("169.254.169.254", 1), reason: "metadata"},
		"the metadata service of AWS over IPv6": {endpoint: endpoint("fd00:ec2::254", 1), reason: "metadata"},
		"link-local":                            {endpoint: endpoint("169.254.1.1", 1), reason: "link-local"},
		"link-local IPv6":                       {endpoint: endpoint("fe80::1", 1), reason: "link-local"},
		"a zone":                                {endpoint: endpoint("fe80::1%eth0", 1), reason: "zone"},
		"multicast":                             {endpoint: endpoint("224.0.0.1", 1), reason: "multicast"},
		"broadcast":                             {endpoint: endpoint("255.255.255.255", 1), reason: "broadcast"},
		"localhost":                             {endpoint: endpoint("localhost", 1), reason: "own machine"},
		"the metadata service by name":          {endpoint: endpoint("metadata.google.internal", 1), reason: "metadata"},
		"an IP address that is none":            {endpoint: endpoint("256.1.1.1", 1), reason: "neither"},
		"an empty host":                         {endpoint: endpoint("", 1), reason: "neither"},
		"a host that is a path":                 {endpoint: endpoint("../../x", 1), reason: "neither"},
		"a host with control characters":        {endpoint: endpoint("a\r\n\x1b[31m", 1), reason: "neither"},
		"the gateway of another network": {
			endpoint: endpoint("34.0.0.1", 15443, mutualTLS(), meta("istio", "workload", ";;;;other")), reason: "gateway",
		},
		"a pod that istiod does not know is not a gateway": {endpoint: endpoint("10.0.0.1", 1, meta("istio", "workload", ";;;;Kubernetes")), want: "10.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			a := decodeAssignment(t, plain(t), load(greeter, tt.endpoint, endpoint("192.0.2.1", 7)))
			got := ""
			for _, e := range a.Endpoints {
				if e.Address() != "192.0.2.1:7" {
					got = e.Address()
				}
				if strings.ContainsAny(e.Host, "[]") || e.Port == 0 {
					t.Errorf("host %q port %d, want neither brackets nor port 0", e.Host, e.Port)
				}
			}
			if got != tt.want {
				t.Errorf("address %q, want %q", got, tt.want)
			}
			if tt.want == "" && (len(a.Skipped) != 1 || !strings.Contains(a.Skipped[0].String(), tt.reason) || strings.Contains(a.Skipped[0].String(), "\x1b")) {
				t.Errorf("left out %v, want %q", a.Skipped, tt.reason)
			}
			if len(a.Endpoints) == 0 {
				t.Error("no endpoints, want the valid ones")
			}
		})
	}
	t.Run("allowed addresses are accepted", func(t *testing.T) {
		r := mesh.NewDecoder([]netip.Prefix{prefix("127.0.0.0/8")}, mesh.AcceptMutualTLS)
		a := decodeAssignment(t, r, loadOf(greeter, "127.0.0.1", "169.254.169.254", "0.0.0.0"))
		if len(a.Endpoints) != 1 || len(a.Skipped) != 2 {
			t.Errorf("endpoints = %v, skipped = %v, want 1 and 2 reasons", a.Endpoints, a.Skipped)
		}
	})
}

func TestEndpointDetails(t *testing.T) {
	t.Run("of several addresses the first", func(t *testing.T) {
		e := endpoint("10.0.0.1", 1)
		e.GetEndpoint().AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: socket("2001:db8::1", 1)}}
		expectOne(t, load(greeter, e), registry.Endpoint{Host: "10.0.0.1", Port: 1, Weight: 1})
	})
	t.Run("one address in two localities is one endpoint, the one that is offered", func(t *testing.T) {
		a := load(greeter, endpoint("10.0.0.1", 1, health(corev3.HealthStatus_UNHEALTHY)))
		a.Endpoints = append(a.Endpoints, &endpointv3.LocalityLbEndpoints{
			Locality: &corev3.Locality{Region: "r"}, LbEndpoints: []*endpointv3.LbEndpoint{endpoint("10.0.0.1", 1)},
		})
		expectOne(t, a, registry.Endpoint{Host: "10.0.0.1", Port: 1, Weight: 1, Zone: "r"})
	})
	for name, n := range map[string]uint32{"no weight": 0, "one": 1, "the largest": math.MaxUint32} {
		t.Run(name, func(t *testing.T) {
			e := endpoint("10.0.0.1", 1)
			e.LoadBalancingWeight = nil
			if n > 0 {
				e.LoadBalancingWeight = wrapperspb.UInt32(n)
			}
			expectOne(t, load(greeter, e), registry.Endpoint{Host: "10.0.0.1", Port: 1, Weight: n})
		})
	}
	t.Run("no locality, gaps between priorities: all are accepted", func(t *testing.T) {
		a := &endpointv3.ClusterLoadAssignment{ClusterName: greeter, Endpoints: []*endpointv3.LocalityLbEndpoints{
			{LbEndpoints: []*endpointv3.LbEndpoint{endpoint("10.0.0.1", 1)}, Priority: 7},
			{LbEndpoints: []*endpointv3.LbEndpoint{endpoint("10.0.0.2", 1)}, Priority: 2, Locality: &corev3.Locality{Region: "r", SubZone: "s"}},
			{},
		}}
		got := decodeAssignment(t, plain(t), a)
		if len(got.Endpoints) != 2 || got.Endpoints[0].Zone != "" || got.Endpoints[1].Zone != "r//s" {
			t.Errorf("endpoints = %+v, want 2 in zones %q and %q", got.Endpoints, "", "r//s")
		}
	})
	t.Run("a pod is the instance, a place in a list of addresses is none", func(t *testing.T) {
		w := meta("istio", "workload", "greeter-0;shop;greeter;v1;Kubernetes")
		expectOne(t, load(greeter, endpoint("10.0.0.1", 1, w)), registry.Endpoint{Host: "10.0.0.1", Port: 1, Weight: 1})
		expectOne(t, load(greeter, endpoint("10.0.0.1", 1, w, health(corev3.HealthStatus_HEALTHY))),
			registry.Endpoint{Host: "10.0.0.1", Port: 1, Weight: 1, Health: registry.Healthy, Instance: "shop/greeter-0"})
	})
	t.Run("mutual TLS is reported, and left out where that is configured", func(t *testing.T) {
		a := load(greeter, endpoint("10.0.0.1", 1, mutualTLS()), endpoint("10.0.0.2", 1))
		v := emptyInput()
		v.Clusters[greeter] = decodeCluster(t, plain(t), edsCluster(greeter))
		v.Assignments[greeter] = decodeAssignment(t, plain(t), a)
		n := everything(t)
		j := n.Join(v)
		if got := j.Services[0].Endpoints[0].Attributes[mesh.AttributeTLS]; got != "istio" {
			t.Errorf("tlsMode = %q, want istio", got)
		}
		if got := j.Skipped["greeter.shop.svc.cluster.local:20880"]; !strings.Contains(got, "1 of 2") || !strings.Contains(got, "STRICT") {
			t.Errorf("skipped = %q, want 1 of 2 and STRICT", got)
		}
		without := decodeAssignment(t, mesh.NewDecoder(nil, mesh.SkipMutualTLS), a)
		if len(without.Endpoints) != 1 || len(without.Skipped) != 1 {
			t.Errorf("assignment = %+v, want one endpoint and one reason", without)
		}
	})
	t.Run("bytes that are no resource are an error", func(t *testing.T) {
		if _, _, err := plain(t).DecodeAssignment([]byte{0xff}); err == nil {
			t.Error("DecodeAssignment(invalid) = nil, want an error")
		}
		if _, _, err := plain(t).DecodeCluster([]byte{0xff}); err == nil {
			t.Error("DecodeCluster(invalid) = nil, want an error")
		}
	})
}

func expectOne(t *testing.T, a *endpointv3.ClusterLoadAssignment, want registry.Endpoint) {
	t.Helper()
	got := decodeAssignment(t, plain(t), a)
	if len(got.Endpoints) != 1 || !got.Endpoints[0].Equal(want) {
		t.Errorf("got %+v, want %+v", got.Endpoints, want)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(f, edsCluster(greeter)), encode(f, loadOf(greeter, "10.0.0.1", "::1")))
	f.Add(encode(f, edsCluster("outbound")), encode(f, load("", at(nil))))
	r := mesh.NewDecoder(nil, mesh.AcceptMutualTLS)
	f.Fuzz(func(t *testing.T, cluster, endpoints []byte) {
		v := emptyInput()
		if name, c, err := r.DecodeCluster(cluster); err == nil {
			v.Clusters[name] = c
		}
		if name, a, err := r.DecodeAssignment(endpoints); err == nil {
			v.Assignments[name] = a
			for _, e := range a.Endpoints {
				if e.Port == 0 || e.Host == "" {
					t.Fatalf("endpoint = %+v, want a host and a port", e)
				}
			}
		}
		n := everything(t)
		n.Join(v)
	})
}
