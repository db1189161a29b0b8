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
	// ADS configures the connection to istiod. A node of type router also gets the endpoints
	// of headless services. It is not used if Clusters is set.
	ADS ads.Options

	// Clusters reads clusters and the mapping from elsewhere. nil: they are read from istiod.
	Clusters ClusterReader

	// Mapping reads the host of each service key. nil: only rules name services.
	Mapping MappingReader

	// Naming decides which hosts without a service key are services.
	Naming Naming

	// Allow lists networks whose addresses are accepted although consumers must not call them,
	// such as 127.0.0.0/8 in tests.
	Allow     []netip.Prefix
	MutualTLS MutualTLS

	// Istiod is the host address whose endpoints are istiod's replicas. Replicas is called
	// with them as host:port when they change, but never with an empty list.
	Istiod   naming.HostAddress
	Replicas func(addresses []string)

	// Log receives changes of state; nil: nothing is logged.
	Log *slog.Logger
}

// MappingReader reports the interface mapping. A failed read does not change it.
type MappingReader interface {
	// Run calls changed from one goroutine until ctx ends.
	Run(ctx context.Context, changed func(debug.Snapshot)) error
}

// ClusterReader reports clusters with inline endpoints.
type ClusterReader interface {
	// Run calls changed from one goroutine until ctx ends.
	Run(ctx context.Context, changed func(Changes)) error

	// Recheck starts a full read over a new connection. It does not wait for it.
	Recheck()
}

// Changes are the changes since the last report of a ClusterReader.
type Changes struct {
	Epoch      int // number of the full read
	Connection int // number of the connection

	// Clusters has the changed clusters by name; nil value: removed.
	Clusters map[string]*Cluster

	// Rejected has the errors of clusters by name. A rejected cluster keeps its last valid
	// version. nil value: no longer rejected.
	Rejected map[string]error

	Complete bool            // everything was reported in this epoch
	Lost     error           // why everything may be out of date until the next epoch
	Mapping  *debug.Snapshot // nil: unchanged
}
