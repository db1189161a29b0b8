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

// Status is the status of a source.
type Status struct {
	Stream    ads.State // zero if istiod is not read
	Epoch     int       // number of the newest stream
	Complete  bool      // that stream reported everything that was requested
	Clusters  int       // host addresses of clusters
	Services  int
	Requested int // clusters whose endpoints are requested
	Pending   int // requested clusters whose endpoints the newest stream has not reported
	Mapping   debug.Snapshot
}

// OneService reports whether an unknown scope is the name of one service. Otherwise it stands
// for all services that were never reported.
func OneService(scope string) bool { return scope != keysScope }

// Source writes the services of the mesh into a table. It implements
// registry.Source.
//
// The table is synced once a stream has reported all clusters and the requested endpoints, and
// the mapping is complete. The table is stale without a stream, and while the reports of a new
// stream are compared with it. Meanwhile rows are added and changed; they are removed only at
// the end of the comparison. An error of the mapping does not make the table stale, because
// the keys are kept.
type Source struct {
	// Immutable.
	o       Options
	client  *ads.Client // nil: Options.Clusters reads the mesh
	decoder *Decoder

	// Guarded by mu.
	mu       sync.Mutex
	status   Status
	replicas []string // of istiod
}

// New returns a source that does nothing until Run. The error names the invalid option.
func New(o Options) (*Source, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if (o.Istiod != naming.HostAddress{}) && o.Replicas == nil {
		return nil, errors.New("mesh: Istiod requires Replicas")
	}
	s := &Source{o: o, decoder: NewDecoder(o.Allow, o.MutualTLS)}
	if o.Clusters != nil {
		if o.Mapping != nil || o.Replicas != nil {
			return nil, errors.New("mesh: Clusters excludes Mapping and Replicas: " +
				"it reports the mapping, and has no replicas")
		}
		return s, nil
	}
	s.decoder.router = strings.HasPrefix(o.ADS.Node.GetId(), "router~")
	var err error
	if s.client, err = ads.New(o.ADS); err != nil {
		return nil, fmt.Errorf("mesh: %w", err)
	}
	return s, nil
}

// Status returns the status of the source. It may be called from any goroutine.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	if s.client != nil {
		status.Stream = s.client.State()
	}
	return status
}

func (s *Source) setStatus(status Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

// setReplicas records the replicas of istiod, and reports whether they changed.
func (s *Source) setReplicas(replicas []string) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = !slices.Equal(s.replicas, replicas)
	s.replicas = replicas
	return changed
}

// Recheck compares the table with a full report over a new connection, to another replica of
// istiod if there are several. The old stream continues until the first response on the new
// one. Certainty.Dials of the table rises when the comparison is complete.
func (s *Source) Recheck() {
	if s.client == nil {
		s.o.Clusters.Recheck()
		return
	}
	s.client.Redial(s.otherReplicas()...)
}

// otherReplicas returns the addresses of the known istiod replicas without a connection of
// ours.
func (s *Source) otherReplicas() []string {
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

func hostOnly(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// Run implements registry.Source. It must be called only once.
func (s *Source) Run(ctx context.Context, table *registry.Table) error {
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	ended := make(chan error, 2)
	j := newJoiner(s, table)
	if s.o.Clusters != nil {
		parts.Go(func() {
			ended <- s.o.Clusters.Run(ctx, func(c Changes) { j.apply(ctx, updateOfReader(c)) })
		})
		return j.awaitInterest(ctx, ended)
	}
	j.subscribe(ctx, s.client, s.decoder)
	parts.Go(func() { ended <- s.client.Run(ctx) })
	parts.Go(func() { ended <- s.readMapping(ctx, j) })
	return j.awaitInterest(ctx, ended)
}

// readMapping reports the mapping to the joiner. Without a reader it is empty and complete.
func (s *Source) readMapping(ctx context.Context, j *joiner) error {
	changed := func(snapshot debug.Snapshot) { j.apply(ctx, update{mapping: &snapshot}) }
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
