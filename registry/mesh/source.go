package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

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
