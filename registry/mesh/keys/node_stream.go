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

// clusterType is the resource type that a stream requests. Any type would do.
const clusterType = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// nodeStream is a stream that announces the keys of one node while it is open.
type nodeStream struct {
	// Immutable.
	keys    *nodeKeys
	started time.Time
	end     context.CancelFunc
	done    chan struct{} // closed once the stream has ended

	err error // why the stream ended; must only be read after done is closed
}

// ended reports whether the stream has ended. Then err is set.
func (s *nodeStream) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// open opens a stream, and returns it after its first response. From then on istiod shows the
// keys. It fails if there is no response within the timeout.
func (r *replicaPublisher) open(ctx context.Context, keys *nodeKeys) (*nodeStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(r.publisher.o.Timeout, cancel)
	s := &nodeStream{keys: keys, started: time.Now(), end: cancel, done: make(chan struct{})}
	wire, err := discoveryv3.NewAggregatedDiscoveryServiceClient(r.conn).StreamAggregatedResources(ctx)
	if err == nil {
		err = exchange(wire, &discoveryv3.DiscoveryRequest{Node: keys.node, TypeUrl: clusterType})
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

// exchange sends a request, unless it is nil, receives a response and sends its ACK.
func exchange(
	wire discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient,
	request *discoveryv3.DiscoveryRequest,
) error {
	if request != nil {
		if err := wire.Send(request); err != nil && !errors.Is(err, io.EOF) { // after io.EOF, Recv returns the reason
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

// explain adds the replica, and what an operator can do, to an error.
func (r *replicaPublisher) explain(err error) error {
	remedy := "check that istiod is reachable at this address"
	switch status.Code(err) {
	case codes.Unauthenticated:
		remedy = "configure a token file or a client certificate that istiod accepts"
	case codes.PermissionDenied:
		remedy = "set node.namespace to the namespace of the token or certificate"
	case codes.InvalidArgument:
		remedy = "check node: istiod rejects it"
	default:
	}
	return fmt.Errorf("keys to istiod %s: %w; %s", r.address, ads.Brief(err), remedy)
}
