package mesh

import (
	"errors"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// The type URLs of the resources that a mesh source reads.
const (
	ClusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// The attributes of services and endpoints of a mesh. dubbo-go's xDS registry uses the same
// names.
const (
	AttributeCluster = "meshClusterID" // of a service: outbound|port||fqdn
	AttributeHost    = "meshHostAddr"  // of a service: fqdn:port
	AttributeSubset  = "meshSubset"    // of an endpoint: its subsets, sorted, separated by commas

	// AttributeTLS is istio for an endpoint whose sidecar accepts mutual TLS. The endpoint
	// accepts plaintext too if the policy is PERMISSIVE.
	AttributeTLS = "tlsMode"
)

// Discovery is where the endpoints of a cluster come from.
type Discovery uint8

// The kinds of discovery. The zero value is an unsupported one.
const (
	DiscoveryNone        Discovery = iota
	DiscoveryEDS                   // requested by EDSName
	DiscoveryInline                // in the cluster itself: DNS names or fixed addresses
	DiscoveryEmpty                 // nowhere, the cluster has no endpoints: resolution NONE
	DiscoveryOriginalDst           // istiod sends them only to nodes of type router: headless services
)

// Cluster is a decoded cluster. It is immutable.
type Cluster struct {
	Name      string
	Err       error // why the cluster is not a service; only Name is set then
	ID        naming.Cluster
	Address   naming.HostAddress
	Discovery Discovery
	EDSName   string      // with DiscoveryEDS
	Inline    *Assignment // with DiscoveryInline

	Namespace   string // of the service
	Application string // the name of the Kubernetes service; empty for a ServiceEntry
	Attributes  registry.Attributes
}

// errNotAService is the Err of clusters that every proxy has.
var errNotAService = errors.New("not a service of the mesh")

// NewCluster returns a cluster like istiod's for one port of a host. If inline is nil, the
// cluster has no endpoints.
func NewCluster(id naming.Cluster, inline *Assignment) *Cluster {
	c := &Cluster{Name: id.String(), ID: id, Address: id.HostAddress(), Discovery: DiscoveryEmpty, Inline: inline}
	if inline != nil {
		c.Discovery = DiscoveryInline
	}
	c.Attributes = registry.Attributes{AttributeCluster: c.Name, AttributeHost: c.Address.String()}
	return c
}
