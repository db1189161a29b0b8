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
	// ADS is how istiod is reached and as whom. A node of type router is sent
	// the endpoints of headless services too. It is not used where Clusters is set.
	ADS ads.Options

	// Clusters reads the mesh elsewhere than from istiod; nil: from istiod. It reports
	// the mapping too, so that Mapping has to be nil.
	Clusters ClusterReader

	// Mapping reads which service key lives at which host, as debug.Reader does;
	// nil where only rules name services.
	Mapping MappingReader

	// Naming says which hosts become services, beside those with a key.
	Naming Naming

	// Allow lists networks whose addresses are taken although consumers should
	// not be sent there: 127.0.0.0/8 in tests. MutualTLS says what becomes of
	// endpoints that may refuse plaintext.
	Allow     []netip.Prefix
	MutualTLS MutualTLS

	// Istiod is the host address whose endpoints are istiod's replicas; Replicas
	// is called with them as host:port whenever they change, never with none. See
	// debug.Endpoints.
	Istiod   naming.HostAddress
	Replicas func(addresses []string)

	// Log receives changes of state; nothing is logged if it is nil.
	Log *slog.Logger
}

// MappingReader reports what is known of the interface mapping until ctx ends,
// from one goroutine. A reading that failed leaves the mapping as it was.
type MappingReader interface {
	Run(ctx context.Context, changed func(debug.Snapshot)) error
}

// A ClusterReader reports clusters with all their endpoints, which are inline.
type ClusterReader interface {
	// Run reports what changed until ctx ends, from one goroutine.
	Run(ctx context.Context, changed func(Changes)) error

	// Recheck has everything read anew over a new connection. It does not wait.
	Recheck()
}

// Changes are what a ClusterReader learned since it reported the last.
type Changes struct {
	Epoch      int                 // rises with each time at which everything was read anew
	Connection int                 // number of the connection of that
	Clusters   map[string]*Cluster // by name; nil where gone
	Rejected   map[string]error    // clusters that cannot be reported, and are kept; nil where that ended
	Complete   bool                // everything was reported, with this or before it in the same epoch
	Lost       error               // why all that is known may be out of date, until the next epoch
	Mapping    *debug.Snapshot     // nil: as it was
}

// Status is how a source stands.
type Status struct {
	Stream   ads.State      // zero where istiod is not read
	Complete bool           // the newest stream reported everything that is needed
	Epoch    int            // number of that stream
	Clusters int            // host addresses that istiod shows
	Services int            // rows
	Needed   int            // clusters whose endpoints are asked for
	Waiting  int            // of them those that the newest stream has not reported
	Mapping  debug.Snapshot // its Err says why the mapping may be out of date; known keys stay in sync
}

// OneService reports whether a scope that a mesh cannot report is one service,
// by its name, and not everything that was never reported.
func OneService(scope string) bool { return scope != keysScope }
