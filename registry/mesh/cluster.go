package mesh

import (
	"errors"

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

// errNotAService is the Err of clusters that every proxy has.
var errNotAService = errors.New("no service of the mesh")

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
