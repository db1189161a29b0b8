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
	Stream    ads.State      // zero if istiod is not read
	Complete  bool           // the newest stream reported everything that was asked for
	Epoch     int            // number of that stream
	Clusters  int            // host addresses that istiod shows
	Services  int            // rows
	Requested int            // clusters whose endpoints are asked for
	Pending   int            // of them those that the newest stream has not reported
	Mapping   debug.Snapshot // its Err says why the mapping may be out of date
}

// OneService reports whether a scope that a mesh reports as unknown is one service,
// by its name, and not all services that were never reported.
func OneService(scope string) bool { return scope != keysScope }

// Source writes the services of the mesh into a table. It implements
// registry.Source.
//
// The table is synced once a stream reported all clusters and the endpoints asked
// for, and the mapping is complete. Without a stream, and while a new one is compared
// with what was known, the table is stale: rows are added or changed, and removed
// only at the end of the comparison. An error of the mapping does not make the table
// stale: its keys are kept.
type Source struct {
	o       Options
	client  *ads.Client // nil if Options.Clusters reads the mesh
	decoder *Decoder

	mu       sync.Mutex // guards what follows
	status   Status
	replicas []string // of istiod
}

// New returns a source that does nothing until Run. The error names the invalid
// option.
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
			return nil, errors.New("mesh: Clusters reports the mapping, and knows no replicas: Mapping and Replicas have to be nil")
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

// Status returns the status of the source. It may be called at any time.
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

func (s *Source) setReplicas(replicas []string) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = !slices.Equal(s.replicas, replicas)
	s.replicas = replicas
	return changed
}

// Recheck has everything reported again over a new connection, to another replica of
// istiod if there are several, and compares it. The old stream continues until the
// new one delivers. Certainty.Dials of the table rises when that is done.
func (s *Source) Recheck() {
	if s.client == nil {
		s.o.Clusters.Recheck()
		return
	}
	s.client.Redial(s.otherReplicas()...)
}

// otherReplicas returns the addresses of the replicas of istiod that we are not
// connected to, as far as they are known.
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

// Run implements registry.Source. It may be called once.
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

// readMapping reports the mapping to the loop. Without a reader it is empty and
// complete.
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
