package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// Source keeps a table of what the mesh offers. It implements
// registry.Source.
//
// The table is synced once a stream told of all clusters and of all endpoints
// that are needed, and the mapping is complete. While a new stream is compared
// with what was known, and while there is none, the table is stale and rows
// are only added or changed; what is missing goes when the comparison ends. An
// error of the mapping does not make the table stale: it keeps its keys.
type Source struct {
	o       Options
	client  *ads.Client
	reading *Reading
	inbox   *inbox

	mu     sync.Mutex // guards what follows
	status Status
	checks int
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
	s := &Source{o: o, reading: NewReading(o.Allow, o.MutualTLS), inbox: newInbox()}
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
	status.Stream = s.client.State()
	return status
}

// Recheck has everything told anew over a fresh stream, and compares it. The
// old stream goes on until the new one delivers. The table's epoch rises when
// that is done.
func (s *Source) Recheck() {
	s.mu.Lock()
	s.checks++
	n := s.checks
	s.mu.Unlock()
	node := &corev3.Node{}
	if s.o.ADS.Node != nil {
		node = proto.CloneOf(s.o.ADS.Node)
	}
	if node.Metadata == nil {
		node.Metadata = &structpb.Struct{}
	}
	if node.Metadata.Fields == nil {
		node.Metadata.Fields = map[string]*structpb.Value{}
	}
	// Only a node that differs opens a stream. istiod drops keys it does not know.
	node.Metadata.Fields["XDS_BRIDGE_RECHECK"] = structpb.NewStringValue(strconv.Itoa(n))
	s.client.SetNode(node)
}

// Run implements registry.Source. It may be called once.
func (s *Source) Run(ctx context.Context, table *registry.Table) error {
	ctx, cancel := context.WithCancel(ctx)
	clusters := ads.Subscribe(s.client, ads.Kind[*Cluster]{
		URL: ClusterType, Full: true, Decode: s.reading.DecodeCluster,
	}, s.inbox.takeClusters)
	endpoints := ads.Subscribe(s.client, ads.Kind[*Assignment]{
		URL: EndpointType, Decode: s.reading.DecodeAssignment,
	}, s.inbox.takeEndpoints)
	clusters.Watch(ads.Wildcard)

	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	ended := make(chan error, 2)
	parts.Go(func() { ended <- s.client.Run(ctx) })
	parts.Go(func() { ended <- s.readMapping(ctx) })
	l := &loop{
		source: s, table: table, endpoints: endpoints,
		state: newState(s.o.Naming, s.o.Istiod), missing: map[string]struct{}{},
	}
	return l.run(ctx, ended)
}

// readMapping hands the mapping on. Without a reader it is empty and complete.
func (s *Source) readMapping(ctx context.Context) error {
	changed := func(snapshot debug.Snapshot) {
		s.inbox.add(func(n *news) { n.mapping = &snapshot })
	}
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
