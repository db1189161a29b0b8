package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
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

// Source keeps a table of what the mesh offers. It implements
// registry.Source.
//
// The table is synced once a stream reported all clusters and of all endpoints
// that are needed, and the mapping is complete. While a new stream is compared
// with what was known, and while there is none, the table is stale and rows
// are only added or changed; what is missing goes when the comparison ends. An
// error of the mapping does not make the table stale: it keeps its keys.
type Source struct {
	o       Options
	client  *ads.Client // nil where Options.Clusters reads the mesh
	reading *Reading

	mu       sync.Mutex // guards what follows
	status   Status
	replicas []string // of istiod
}

// New returns a source that does nothing until Run. The error names the option
// that is wrong.
func New(o Options) (*Source, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if (o.Istiod != naming.HostAddress{}) && o.Replicas == nil {
		return nil, errors.New("mesh: Istiod needs Replicas")
	}
	s := &Source{o: o, reading: NewReading(o.Allow, o.MutualTLS)}
	if o.Clusters != nil {
		if o.Mapping != nil || o.Replicas != nil {
			return nil, errors.New("mesh: Clusters reports the mapping, and knows no replicas: Mapping and Replicas have to be nil")
		}
		return s, nil
	}
	s.reading.router = strings.HasPrefix(o.ADS.Node.GetId(), "router~")
	var err error
	if s.client, err = ads.New(o.ADS); err != nil {
		return nil, fmt.Errorf("mesh: %w", err)
	}
	return s, nil
}

// Status returns how the source stands. It may be called at any time.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	if s.client != nil {
		status.Stream = s.client.State()
	}
	return status
}

// Recheck has everything reported anew over a new connection, to another replica of
// istiod where there are several, and compares it. The old stream continues until
// the new one delivers. Knowledge.Dials of the table rises when that is done.
func (s *Source) Recheck() {
	if s.client == nil {
		s.o.Clusters.Recheck()
		return
	}
	s.client.Redial(s.others()...)
}

// others returns where to reach the replicas of istiod that we are not connected
// to, as far as they are known: the address of their Service leads to any.
func (s *Source) others() []string {
	_, port, err := net.SplitHostPort(s.o.ADS.Address)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	replicas, ours := slices.Clone(s.replicas), map[string]bool{}
	for _, r := range s.status.Mapping.Replicas {
		ours[hostOnly(r.Replica)] = r.Own
	}
	s.mu.Unlock()
	ours[hostOnly(s.client.State().Address)] = true
	rand.Shuffle(len(replicas), func(i, j int) { replicas[i], replicas[j] = replicas[j], replicas[i] })
	var others []string
	for _, r := range replicas {
		if host := hostOnly(r); !ours[host] {
			others = append(others, net.JoinHostPort(host, port))
		}
	}
	return others
}

// hostOnly takes the port off an address that has one.
func hostOnly(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// Run implements registry.Source. It may be called once.
func (s *Source) Run(ctx context.Context, table *registry.Table) error {
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	ended := make(chan error, 2)
	l := &loop{
		source: s, table: table, endpoints: noSubscription{},
		state: newState(s.o.Naming, s.o.Istiod), missing: map[string]struct{}{}, inherited: map[registry.Name]struct{}{},
	}
	if s.o.Clusters != nil {
		parts.Go(func() {
			ended <- s.o.Clusters.Run(ctx, func(c Changes) { l.apply(ctx, updateOfReader(c)) })
		})
		return l.run(ctx, ended)
	}
	clusters := ads.Subscribe(s.client, ads.Kind[*Cluster]{
		URL: ClusterType, Full: true, Decode: s.reading.DecodeCluster,
	}, func(e ads.Event[*Cluster]) { l.apply(ctx, updateOfClusters(e)) })
	l.endpoints = ads.Subscribe(s.client, ads.Kind[*Assignment]{
		URL: EndpointType, Decode: s.reading.DecodeAssignment,
	}, func(e ads.Event[*Assignment]) { l.apply(ctx, updateOfEndpoints(e)) })
	clusters.Watch(ads.Wildcard)
	parts.Go(func() { ended <- s.client.Run(ctx) })
	parts.Go(func() { ended <- s.readMapping(ctx, l) })
	return l.run(ctx, ended)
}

// noSubscription subscribes no endpoints: those that clusters hold are not asked for.
type noSubscription struct{}

func (noSubscription) Watch(...string)   {}
func (noSubscription) Unwatch(...string) {}

// readMapping hands the mapping on. Without a reader it is empty and complete.
func (s *Source) readMapping(ctx context.Context, l *loop) error {
	changed := func(snapshot debug.Snapshot) { l.apply(ctx, update{mapping: &snapshot}) }
	if s.o.Mapping == nil {
		changed(debug.Snapshot{Complete: true})
		<-ctx.Done()
		return nil
	}
	if err := s.o.Mapping.Run(ctx, changed); err != nil {
		return fmt.Errorf("mapping: %w", err)
	}
	return nil
}
