package mesh

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Decoder decodes clusters and endpoints. It is safe for concurrent use.
type Decoder struct {
	allow         []netip.Prefix
	skipMutualTLS bool
	router        bool                // our node is a router, to which istiod sends headless services
	mutualTLS     registry.Attributes // shared by all endpoints that accept mutual TLS
}

// NewDecoder returns a decoder. It leaves out addresses that consumers must not call:
// loopback, link-local, multicast and metadata services. Addresses within allow are accepted.
func NewDecoder(allow []netip.Prefix, m MutualTLS) *Decoder {
	return &Decoder{
		allow: slices.Clone(allow), skipMutualTLS: m == SkipMutualTLS,
		mutualTLS: registry.Attributes{AttributeTLS: modeMutual},
	}
}

// MutualTLS decides about endpoints that accept mutual TLS. Whether they accept plaintext too
// depends on a policy that xDS does not show.
type MutualTLS uint8

// AcceptMutualTLS accepts such endpoints, and marks them with AttributeTLS. SkipMutualTLS
// leaves them out.
const (
	AcceptMutualTLS MutualTLS = iota
	SkipMutualTLS
)

// DecodeAssignment implements ads.Kind.Decode for EndpointType.
func (d *Decoder) DecodeAssignment(data []byte) (string, *Assignment, error) {
	var a endpointv3.ClusterLoadAssignment
	if err := proto.Unmarshal(data, &a); err != nil {
		return "", nil, fmt.Errorf("endpoints: %w", err)
	}
	return a.GetClusterName(), d.assignment(&a), nil
}

func (d *Decoder) assignment(a *endpointv3.ClusterLoadAssignment) *Assignment {
	n := 0
	for _, l := range a.GetEndpoints() {
		n += len(l.GetLbEndpoints())
	}
	out := &Assignment{Endpoints: make([]registry.Endpoint, 0, n)}
	// Priorities are ignored: they depend on our locality, not on that of the consumers.
	for _, l := range a.GetEndpoints() {
		zone := zoneOfLocality(l.GetLocality())
		for _, lb := range l.GetLbEndpoints() {
			e, reason := d.checkedEndpoint(endpointSpecOf(lb, zone))
			switch {
			case reason == "":
				out.Endpoints = append(out.Endpoints, e)
			case e.Host == "":
				out.skip(reason, "")
			default:
				out.skip(reason, e.Host+":"+strconv.Itoa(int(e.Port)))
			}
		}
	}
	out.normalize()
	return out
}

// Assignment returns the assignment of endpoints that do not come from xDS.
func (d *Decoder) Assignment(endpoints []EndpointSpec) *Assignment {
	out := &Assignment{Endpoints: make([]registry.Endpoint, 0, len(endpoints))}
	for _, s := range endpoints {
		e, reason := d.checkedEndpoint(s)
		if reason != "" {
			out.skip(reason, net.JoinHostPort(s.Host, strconv.FormatUint(uint64(s.Port), 10)))
			continue
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	out.normalize()
	return out
}

// DecodeCluster implements ads.Kind.Decode for ClusterType. A cluster that is not a service is
// returned with Err set. It must not be rejected, because istiod would send it forever.
func (d *Decoder) DecodeCluster(data []byte) (string, *Cluster, error) {
	var c clusterv3.Cluster
	if err := proto.Unmarshal(data, &c); err != nil {
		return "", nil, fmt.Errorf("cluster: %w", err)
	}
	return c.GetName(), d.cluster(&c), nil
}

// dynamicForwardProxy is the type of clusters whose host each proxy resolves at each call:
// ServiceEntries with a wildcard host and resolution DYNAMIC_DNS.
const dynamicForwardProxy = "envoy.clusters.dynamic_forward_proxy"

func (d *Decoder) cluster(c *clusterv3.Cluster) *Cluster {
	out := &Cluster{Name: strings.Clone(c.GetName())}
	id, err := naming.ParseCluster(c.GetName())
	switch {
	case err != nil && strings.HasPrefix(c.GetName(), naming.Outbound):
		out.Err = err
		return out
	case err != nil || id.Direction != naming.Outbound:
		out.Err = errNotAService
		return out
	}
	out.ID, out.Address = id, id.HostAddress()
	out.Attributes = registry.Attributes{AttributeCluster: out.Name, AttributeHost: out.Address.String()}
	out.Namespace, out.Application = telemetryNames(c)
	if kind := c.GetClusterType(); kind != nil { // GetType returns STATIC for these
		if kind.GetName() == dynamicForwardProxy {
			out.Discovery = DiscoveryEmpty
		}
		return out
	}
	switch c.GetType() {
	case clusterv3.Cluster_EDS:
		out.Discovery, out.EDSName = DiscoveryEDS, out.Name
		if name := c.GetEdsClusterConfig().GetServiceName(); name != "" {
			out.EDSName = strings.Clone(name)
		}
	case clusterv3.Cluster_STRICT_DNS, clusterv3.Cluster_LOGICAL_DNS, clusterv3.Cluster_STATIC:
		out.Discovery = DiscoveryInline
		out.Inline = d.assignment(c.GetLoadAssignment())
	case clusterv3.Cluster_ORIGINAL_DST:
		out.Discovery = DiscoveryOriginalDst
		if d.router { // a router gets EDS clusters for services with endpoints
			out.Discovery = DiscoveryEmpty
		}
	}
	return out
}

// telemetryNames returns the namespace and the name of a service from istiod's telemetry
// labels. The name is empty for a ServiceEntry, where the label holds the host.
func telemetryNames(c *clusterv3.Cluster) (namespace, application string) {
	list := c.GetMetadata().GetFilterMetadata()["istio"].GetFields()["services"].GetListValue().GetValues()
	if len(list) == 0 {
		return "", ""
	}
	f := list[0].GetStructValue().GetFields()
	namespace = strings.Clone(f["namespace"].GetStringValue())
	if name := f["name"].GetStringValue(); name != f["host"].GetStringValue() {
		application = strings.Clone(name)
	}
	return namespace, application
}
