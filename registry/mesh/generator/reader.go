package generator

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/kube"
)

// Query is what an Observation of a reading has as its question.
const Query = "api"

// Options say how istiod is asked. All but Namespaces, Log and Observe are required.
type Options struct {
	// Dial returns the connection to istiod, and what ends it. It does not wait for
	// the connection to stand.
	Dial    func() (conn grpc.ClientConnInterface, release func(), err error)
	Address string     // of istiod, for errors
	Node    *core.Node // sent with each reading, never written

	Keys       kube.Keys
	Namespaces []string // whose objects count; none: all

	Interval time.Duration // between two readings
	Timeout  time.Duration // of one reading
	MaxBytes int64         // of all objects of one kind

	Log     *slog.Logger            // nil: nothing is logged
	Observe func(debug.Observation) // nil, or told of each reading
}

// Reader reads the mapping. It implements mesh.MappingReader.
type Reader struct {
	o Options
}

// New checks the options and returns a reader that does nothing before Run.
func New(o Options) (*Reader, error) {
	switch {
	case o.Dial == nil || o.Address == "" || o.Node == nil:
		return nil, errors.New("generator: Dial, Address and Node are to be set")
	case o.Interval <= 0 || o.Timeout <= 0 || o.MaxBytes <= 0:
		return nil, errors.New("generator: Interval, Timeout and MaxBytes are to be more than 0")
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
	conn, release, err := r.o.Dial()
	if err != nil {
		return err
	}
	defer release()
	t := &teller{
		replica: debug.ReplicaStatus{Replica: r.o.Address}, log: r.o.Log,
		state: newState(kube.Rules{Keys: r.o.Keys, Decoder: mesh.NewDecoder(nil, mesh.AcceptMutualTLS)}, r.o.Namespaces),
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		began := time.Now()
		a, err := r.read(ctx, conn)
		if ctx.Err() != nil {
			return nil
		}
		var news bool
		if err != nil {
			news = t.fail(err)
		} else {
			news, err = t.take(a, began)
		}
		r.o.Observe(debug.Observation{Replica: r.o.Address, Query: Query, Bytes: a.size(), Duration: time.Since(began), Err: err})
		if news {
			changed(t.snapshot(time.Now()))
		}
		timer.Reset(r.o.Interval)
	}
}

// read asks istiod for everything. The stream ends with the reading: to one that
// stays istiod sends everything anew at each change of whatever in the mesh, and
// nothing where an annotation alone changed.
func (r *Reader) read(ctx context.Context, conn grpc.ClientConnInterface) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx, grpc.MaxCallRecvMsgSize(int(r.o.MaxBytes)))
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	a, node := make(answer), r.o.Node
	for _, k := range kinds() {
		for _, url := range k.urls() {
			if a[k], err = ask(stream, &discovery.DiscoveryRequest{TypeUrl: url, Node: node}); err != nil {
				return nil, r.explain(ctx, err)
			}
			if node = nil; len(a[k]) > 0 {
				break
			}
		}
	}
	return a, nil
}

// ask sends a question and waits for its answer. That is not acknowledged: the stream
// ends before istiod looks for it.
func ask(stream grpc.BidiStreamingClient[discovery.DiscoveryRequest, discovery.DiscoveryResponse], q *discovery.DiscoveryRequest) ([]*anypb.Any, error) {
	if err := stream.Send(q); err != nil && !errors.Is(err, io.EOF) {
		return nil, err //nolint:wrapcheck // explained by the caller; after io.EOF Recv tells why
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return nil, err //nolint:wrapcheck // explained by the caller
		}
		if response.GetTypeUrl() == q.GetTypeUrl() {
			return response.GetResources(), nil
		}
	}
}

func (a answer) size() int64 {
	var n int64
	for _, all := range a {
		for _, wire := range all {
			n += int64(len(wire.GetValue()))
		}
	}
	return n
}

// explain says why a reading failed, and what to do about it.
func (r *Reader) explain(ctx context.Context, err error) error {
	e := &debug.Error{Cause: debug.CauseOfStatus(err), Where: "the api generator at " + r.o.Address, Err: err}
	if ctx.Err() != nil {
		e.Cause, e.Err = debug.Slow, errors.New("no whole answer in time")
	}
	switch e.Cause { //nolint:exhaustive // what to do about the others is the same as with the debug API
	case debug.Unauthorized:
		e.Fix = "use istiod's TLS port (15012) with tls, and with tokenFile or a client certificate of a service account in istiod's root namespace (istio-system)"
	case debug.Forbidden:
		e.Fix = "run as a service account of istiod's root namespace (istio-system), and write it as node.namespace; or set ENABLE_XDS_API_GENERATOR_AUTH=false of istiod"
	case debug.Unreachable:
		e.Fix = "check that istiod runs and that no network policy closes its xDS port (15012)"
	case debug.NotServed:
		e.Fix = "check that the address is istiod's own"
	}
	return e
}
