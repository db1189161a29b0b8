package generator

import (
	"context"
	"errors"
	"log/slog"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

// Query is the debug.Observation.Query of a reading.
const Query = "api"

// Options tell how istiod is read. All but Namespaces, Log and Observe are required.
type Options struct {
	// Dial returns a connection to istiod and a function that releases it. It does not
	// wait until the connection is established.
	Dial    func() (conn grpc.ClientConnInterface, release func(), err error)
	Address string     // of istiod, for errors
	Node    *core.Node // sent with each reading; not changed

	Keys       kube.Keys
	Namespaces []string // of objects; empty: all

	Interval time.Duration // between two readings
	Timeout  time.Duration // of one reading
	MaxBytes int64         // of all objects of one kind

	Log     *slog.Logger            // nil: nothing is logged
	Observe func(debug.Observation) // if not nil, called after each reading
}

// Reader reads the interface mapping from istiod. It implements mesh.MappingReader.
type Reader struct {
	o Options
}

// New checks the options and returns a reader that does nothing before Run.
func New(o Options) (*Reader, error) {
	switch {
	case o.Dial == nil || o.Address == "" || o.Node == nil:
		return nil, errors.New("generator: Dial, Address and Node are required")
	case o.Interval <= 0 || o.Timeout <= 0 || o.MaxBytes <= 0:
		return nil, errors.New("generator: Interval, Timeout and MaxBytes must be more than 0")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(debug.Observation) {}
	}
	return &Reader{o}, nil
}

// Run implements mesh.MappingReader: it reads at once, and then at each interval.
func (r *Reader) Run(ctx context.Context, changed func(debug.Snapshot)) error {
	conn := &debug.Connection{Dial: r.o.Dial}
	defer conn.Close()
	if _, err := conn.Get(); err != nil {
		return err
	}
	rules := kube.Rules{Keys: r.o.Keys, Decoder: mesh.NewDecoder(nil, mesh.AcceptMutualTLS)}
	s := newMappingState(r.o.Address, rules, r.o.Namespaces, r.o.Log)
	debug.Repeat(ctx, func() time.Duration {
		start := time.Now()
		read, err := r.readAll(ctx, conn)
		if ctx.Err() != nil {
			return r.o.Interval
		}
		var updated bool
		if err != nil {
			updated = s.recordFailure(err)
		} else {
			updated, err = s.apply(read, start)
		}
		r.o.Observe(debug.Observation{
			Replica: r.o.Address, Query: Query, Bytes: read.size(), Duration: time.Since(start), Err: err,
		})
		if updated {
			changed(s.snapshot(time.Now()))
		}
		return r.o.Interval
	})
	return nil
}

// readAll reads all objects over a new stream. On an open stream, istiod would send everything
// again at each change in the mesh, and nothing if only an annotation changed. Responses are
// not acknowledged, because the stream ends right after them.
func (r *Reader) readAll(ctx context.Context, connection *debug.Connection) (_ resourcesByKind, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	conn, err := connection.Get()
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	defer func() { connection.Failed(err) }()
	client := discovery.NewAggregatedDiscoveryServiceClient(conn)
	stream, err := client.StreamAggregatedResources(ctx, grpc.MaxCallRecvMsgSize(int(r.o.MaxBytes)))
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	out, node := make(resourcesByKind), r.o.Node
	for _, k := range objectKinds() {
		for _, url := range k.urls() {
			response, err := debug.Request(stream, &discovery.DiscoveryRequest{TypeUrl: url, Node: node})
			if err != nil {
				return nil, r.explain(ctx, err)
			}
			out[k] = response.GetResources()
			if node = nil; len(out[k]) > 0 {
				break
			}
		}
	}
	return out, nil
}

// explain wraps the error of a reading with its cause and the remedy.
func (r *Reader) explain(ctx context.Context, err error) error {
	e := &debug.Error{Cause: debug.CauseOfStatus(err), Where: "the api generator at " + r.o.Address, Err: err}
	if ctx.Err() != nil {
		e.Cause, e.Err = debug.Slow, errors.New("no complete response before the timeout")
	}
	switch e.Cause { //nolint:exhaustive // the other causes have the remedies of the debug API
	case debug.Unauthorized:
		e.Fix = "use istiod's TLS port (15012) with tls, and with tokenFile or a client certificate of a service account " +
			"in istiod's root namespace (istio-system)"
	case debug.Forbidden:
		e.Fix = "run as a service account of istiod's root namespace (istio-system), and set node.namespace to it; " +
			"or set ENABLE_XDS_API_GENERATOR_AUTH=false in istiod"
	case debug.Unreachable:
		e.Fix = "check that istiod runs, and that no network policy blocks its xDS port (15012)"
	case debug.NotServed:
		e.Fix = "check that the address is that of istiod"
	}
	return e
}
