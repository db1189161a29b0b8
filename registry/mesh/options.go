package mesh

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// Options configure a Source.
type Options struct {
	// ADS says how to connect to istiod, and as which node. A node of type router is sent
	// the endpoints of headless services too. It is not used if Clusters is set.
	ADS ads.Options

	Clusters ClusterReader // reads clusters and the mapping from another source; nil: from istiod
	Mapping  MappingReader // reads the host of each service key; nil: only rules name services
	Naming   Naming        // which hosts are services, in addition to those with a key

	// Allow lists networks whose addresses are accepted although consumers should
	// not be sent there: 127.0.0.0/8 in tests.
	Allow     []netip.Prefix
	MutualTLS MutualTLS

	// Istiod is the host address whose endpoints are istiod's replicas. Replicas is
	// called with them as host:port whenever they change, never with none.
	Istiod   naming.HostAddress
	Replicas func(addresses []string)

	Log *slog.Logger // receives changes of state; nil: nothing is logged
}

// MappingReader reports what is known of the interface mapping until ctx ends,
// from one goroutine. A reading that failed does not change the mapping.
type MappingReader interface {
	Run(ctx context.Context, changed func(debug.Snapshot)) error
}

// ClusterReader reports clusters with all their endpoints, which are inline.
type ClusterReader interface {
	// Run reports changes until ctx ends, from one goroutine.
	Run(ctx context.Context, changed func(Changes)) error

	// Recheck has everything read again over a new connection. It does not wait.
	Recheck()
}

// Changes are what a ClusterReader read since its last report.
type Changes struct {
	Epoch      int                 // rises with each full reading
	Connection int                 // number of the connection
	Clusters   map[string]*Cluster // by name; nil: gone
	Rejected   map[string]error    // clusters that cannot be read, and are kept; nil: no longer
	Complete   bool                // everything was reported in this epoch
	Lost       error               // why everything may be out of date, until the next epoch
	Mapping    *debug.Snapshot     // nil: unchanged
}
