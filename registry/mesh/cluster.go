package mesh

import (
	"errors"
	"fmt"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The type URLs that are read.
const (
	ClusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// The attributes of a mesh row, by their names in dubbo-go's xDS registry.
const (
	AttributeCluster = "meshClusterID" // of a service: outbound|port||fqdn
	AttributeHost    = "meshHostAddr"  // of a service: fqdn:port
	AttributeSubset  = "meshSubset"    // of an endpoint: its subsets, by name, separated by commas
	AttributeTLS     = "tlsMode"       // of an endpoint: istio if its sidecar accepts mutual TLS, and plaintext only if PERMISSIVE
)

// Discovery is how the endpoints of a cluster are found.
type Discovery uint8

// The kinds of discovery. The zero value is one that cannot be read.
const (
	DiscoveryNone        Discovery = iota
	DiscoveryEDS                   // asked for by EDSName
	DiscoveryInline                // in the cluster itself: DNS names or fixed addresses
	DiscoveryEmpty                 // no endpoints for anybody: resolution NONE
	DiscoveryOriginalDst           // sent to nodes of type router only: headless services
)

// Cluster is a decoded cluster. It is never changed.
type Cluster struct {
	Name        string
	ID          naming.Cluster // zero if Err is set
	Address     naming.HostAddress
	Discovery   Discovery
	EDSName     string
	Namespace   string // of the service
	Application string // the name of a Kubernetes service
	Attributes  registry.Attributes
	Inline      *Assignment // of DiscoveryInline
	Err         error       // why the cluster is no service
}

// dynamicForwardProxy is the kind of cluster whose endpoints each proxy resolves when it
// is called: ServiceEntries of a wildcard host and resolution DYNAMIC_DNS.
const dynamicForwardProxy = "envoy.clusters.dynamic_forward_proxy"

// errNotAService is the Err of clusters that every proxy has.
var errNotAService = errors.New("no service of the mesh")

// DecodeCluster implements ads.Kind.Decode for ClusterType. A cluster that is no
// service is a value with an Err and not an error: istiod would send a rejected
// cluster again and again.
func (d *Decoder) DecodeCluster(data []byte) (string, *Cluster, error) {
	var c clusterv3.Cluster
	if err := proto.Unmarshal(data, &c); err != nil {
		return "", nil, fmt.Errorf("cluster: %w", err)
	}
	return c.GetName(), d.cluster(&c), nil
}

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
	if kind := c.GetClusterType(); kind != nil { // without it GetType would say STATIC
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
		if d.router { // which has EDS clusters for services with endpoints
			out.Discovery = DiscoveryEmpty
		}
	}
	return out
}

// telemetryNames reads istiod's telemetry labels of a cluster. The name of a ServiceEntry
// is its host and left out.
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

// NewCluster returns the cluster that istiod makes of a port of a host; inline nil:
// it has no endpoints for anybody.
func NewCluster(id naming.Cluster, inline *Assignment) *Cluster {
	c := &Cluster{Name: id.String(), ID: id, Address: id.HostAddress(), Discovery: DiscoveryEmpty, Inline: inline}
	if inline != nil {
		c.Discovery = DiscoveryInline
	}
	c.Attributes = registry.Attributes{AttributeCluster: c.Name, AttributeHost: c.Address.String()}
	return c
}
