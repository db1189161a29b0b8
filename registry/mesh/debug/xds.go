package debug

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// debugType is the type URL of istiod's debug pages. The name of a resource is the page with
// its parameters.
const debugType = "istio.io/debug"

// xdsTransport reads the debug pages of one replica over a stream of its own, because istiod
// ends the stream when it refuses a debug request. It never sends an ACK: istiod would answer
// with the page again.
type xdsTransport struct {
	// Immutable.
	o        *XDSOptions
	replica  string
	maxBytes int

	// Owned by the goroutine of the poller.
	connection Connection
	stream     discoveryStream    // nil: none
	cancel     context.CancelFunc // of stream
}

type discoveryStream = grpc.BidiStreamingClient[discovery.DiscoveryRequest, discovery.DiscoveryResponse]

func newXDS(o *XDSOptions, replica string, maxBytes int64) *xdsTransport {
	return &xdsTransport{o: o, replica: replica, maxBytes: int(maxBytes), connection: Connection{
		Dial: func() (grpc.ClientConnInterface, func(), error) { return o.Dial(replica) },
	}}
}

func (t *xdsTransport) where(query string) string {
	return debugType + " " + query + " at " + t.replica
}

func (t *xdsTransport) close() {
	t.endStream()
	t.connection.Close()
}

func (t *xdsTransport) endStream() {
	if t.stream != nil {
		t.cancel()
		t.stream = nil
	}
}

// get implements transport.
func (t *xdsTransport) get(ctx context.Context, query string, read func(io.Reader, time.Time) error) error {
	reused := t.stream != nil
	body, err := t.request(ctx, query)
	if err != nil && reused && ctx.Err() == nil && status.Code(err) != codes.ResourceExhausted {
		// istiod ends streams at any time. The failure of an older stream is no reason to
		// fail this request.
		body, err = t.request(ctx, query)
	}
	if err != nil {
		if _, known := errors.AsType[*Error](err); known {
			return err
		}
		if ctx.Err() != nil {
			return newError(Slow, "no response in time")
		}
		return &Error{Cause: CauseOfStatus(err), Err: err}
	}
	return read(bytes.NewReader(body), time.Time{})
}

// request sends one request and returns the page. If it fails, it closes the stream.
func (t *xdsTransport) request(ctx context.Context, query string) (_ []byte, err error) {
	defer func() { t.connection.Failed(err) }()
	request := &discovery.DiscoveryRequest{TypeUrl: debugType, ResourceNames: []string{query}}
	if t.stream == nil {
		if err := t.connect(ctx); err != nil {
			return nil, err
		}
		request.Node = t.o.Node
	}
	stop := context.AfterFunc(ctx, t.cancel)
	defer func() {
		if !stop() || err != nil {
			t.endStream()
		}
	}()
	response, err := Request(t.stream, request)
	switch {
	case err != nil:
		return nil, err
	case len(response.GetResources()) != 1:
		return nil, newError(NotAnswer, "the response must have exactly one resource")
	}
	return response.GetResources()[0].GetValue(), nil
}

// Request sends one request, and returns the first response of the same type.
func Request(stream discoveryStream, r *discovery.DiscoveryRequest) (*discovery.DiscoveryResponse, error) {
	if err := stream.Send(r); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for {
		response, err := stream.Recv()
		if err != nil || response.GetTypeUrl() == r.GetTypeUrl() {
			return response, err
		}
	}
}

// connect opens a stream for this request and later ones.
func (t *xdsTransport) connect(ctx context.Context) error {
	conn, err := t.connection.Get()
	if err != nil {
		return &Error{Cause: Unreachable, Err: err}
	}
	long, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).
		StreamAggregatedResources(long, grpc.MaxCallRecvMsgSize(t.maxBytes))
	if !stop() {
		cancel()
		return newError(Unreachable, "no connection in time")
	}
	if err != nil {
		cancel()
		return err
	}
	t.stream, t.cancel = stream, cancel
	return nil
}

// CauseOfStatus returns the cause of a gRPC error of istiod.
func CauseOfStatus(err error) Cause {
	s, _ := status.FromError(err)
	if ads.IsTokenError(err) {
		return NoToken
	}
	switch s.Code() {
	case codes.Unauthenticated:
		return Unauthorized
	case codes.PermissionDenied:
		return Forbidden
	case codes.DeadlineExceeded:
		return Slow
	case codes.Unimplemented, codes.NotFound:
		return NotServed
	case codes.Unknown, codes.ResourceExhausted:
		return causeOfText(strings.ToLower(s.Message()))
	case codes.InvalidArgument, codes.FailedPrecondition, codes.Internal:
		return Refused
	default:
		return Unreachable
	}
}

// causeOfText returns the cause by the text of an error with an ambiguous code. istiod before
// 1.20 refuses with Unknown. ResourceExhausted is both istiod's rate limit and our size limit.
func causeOfText(text string) Cause {
	switch {
	case strings.Contains(text, "larger than max"):
		return TooLarge
	case strings.Contains(text, "unauthenticated"), strings.Contains(text, "authentication"):
		return Unauthorized
	case strings.Contains(text, "permission"), strings.Contains(text, "unauthorized"):
		return Forbidden
	default:
		return Refused
	}
}
