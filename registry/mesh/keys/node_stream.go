package keys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// clusterType is the type that a stream requests, since it has to request one.
const clusterType = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// nodeStream announces one part while it is open.
type nodeStream struct {
	keys    *nodeKeys
	started time.Time
	end     context.CancelFunc
	done    chan struct{} // closed once it ended
	err     error         // why it ended; written before done is closed
}

// ended reports whether the stream ended; then err says why.
func (s *nodeStream) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// open opens a stream and returns it once it was answered, when istiod shows its
// part.
func (r *replicaPublisher) open(ctx context.Context, p *nodeKeys) (*nodeStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(r.publisher.o.Timeout, cancel)
	s := &nodeStream{keys: p, started: time.Now(), end: cancel, done: make(chan struct{})}
	wire, err := discoveryv3.NewAggregatedDiscoveryServiceClient(r.conn).StreamAggregatedResources(ctx)
	if err == nil {
		err = exchange(wire, &discoveryv3.DiscoveryRequest{Node: p.node, TypeUrl: clusterType})
	}
	if inTime := timer.Stop(); err != nil || !inTime {
		cancel()
		if !inTime {
			err = fmt.Errorf("no response within %s", r.publisher.o.Timeout)
		}
		return nil, r.explain(err)
	}
	r.group.Go(func() {
		defer cancel()
		for s.err == nil {
			s.err = exchange(wire, nil)
		}
		s.err = r.explain(s.err)
		close(s.done)
		select {
		case r.streamEnded <- struct{}{}:
		default:
		}
	})
	return s, nil
}

func exchange(wire discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient, request *discoveryv3.DiscoveryRequest) error {
	if request != nil {
		if err := wire.Send(request); err != nil && !errors.Is(err, io.EOF) { // after io.EOF Recv reports why
			return err
		}
	}
	response, err := wire.Recv()
	if err != nil {
		return err
	}
	err = wire.Send(&discoveryv3.DiscoveryRequest{
		TypeUrl: response.GetTypeUrl(), VersionInfo: response.GetVersionInfo(), ResponseNonce: response.GetNonce(),
	})
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// explain adds the replica and what to do.
func (r *replicaPublisher) explain(err error) error {
	remedy := "check that istiod answers at this address"
	switch status.Code(err) {
	case codes.Unauthenticated:
		remedy = "give a token file or a client certificate that istiod knows"
	case codes.PermissionDenied:
		remedy = "set node.namespace to the namespace of the token or certificate"
	case codes.InvalidArgument:
		remedy = "check node: istiod does not accept it"
	default:
	}
	return fmt.Errorf("keys to istiod %s: %w; %s", r.address, ads.Brief(err), remedy)
}
