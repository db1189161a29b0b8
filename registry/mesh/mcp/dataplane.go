package mcp

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// isDataPlane reports whether a type is one that data planes ask for and istiod
// does not.
func isDataPlane(typeURL string) bool {
	return strings.HasPrefix(typeURL, "type.googleapis.com/envoy.")
}

// follow has data planes sent what istiods are, until ctx ends.
func (s *Server) follow(ctx context.Context) {
	last := &snapshot{}
	for {
		set, changed := s.target.current()
		if set != nil && set != last {
			s.o.DataPlanes.Update(s.difference(last, set))
			last = set
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// difference returns what is new or changed between two sets, and the names of
// what is gone. Both are by name.
func (s *Server) difference(old, next *snapshot) (put []dataplane.Entry, remove []string) {
	before := old.content
	for _, r := range next.content {
		if len(before) > 0 && before[0] == r { // as nearly all are
			before = before[1:]
			continue
		}
		for len(before) > 0 && before[0].name < r.name {
			remove = append(remove, before[0].name)
			before = before[1:]
		}
		if len(before) > 0 && before[0].name == r.name {
			before = before[1:]
		}
		e, err := dataplane.Decode(r.wire)
		if err != nil { // it is of our own making
			s.o.Log.Error("an entry is not served to data planes", "entry", naming.Quote(r.name), "err", err)
			continue
		}
		put = append(put, e)
	}
	for _, r := range before {
		remove = append(remove, r.name)
	}
	return put, remove
}

// A variant is one of the two variants of the protocol on a stream that nobody
// knows yet who asks on.
type variant interface {
	form() form
	first() (typeURL string, err error) // reads the first request, which is read again by the others
	serve(ctx context.Context, to *dataplane.Server, observe func(dataplane.Event)) error
	slow() <-chan struct{} // ready once a client takes too long to read
}

// asks reads the first request of a stream and reports whether a data plane
// asks.
func (st *stream) asks(ctx context.Context, v variant) (bool, error) {
	type asked struct {
		url string
		err error
	}
	first := make(chan asked, 1)
	st.server.running.Go(func() {
		url, err := v.first()
		first <- asked{url, err}
	})
	late := time.NewTimer(askWithin)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-st.replaced:
		return false, st.endReplaced()
	case <-late.C:
		return false, st.overdue()
	case a := <-first:
		if a.err != nil {
			return false, st.lost(a.err)
		}
		return isDataPlane(a.url), nil
	}
}

// serveDataPlane answers a data plane until ctx ends or it has to go.
func (st *stream) serveDataPlane(ctx context.Context, v variant) error {
	st.server.reads(st)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	st.server.running.Go(func() { done <- v.serve(ctx, st.server.o.DataPlanes, st.observe) })
	select {
	case <-ctx.Done():
		return nil
	case <-v.slow():
		return st.refuse(RefusedSlow, codes.DeadlineExceeded, fmt.Errorf("an answer was not read within %s", readWithin))
	case err := <-done:
		if code := status.Code(err); code == codes.InvalidArgument || code == codes.ResourceExhausted {
			return st.refuse(RefusedRequest, code, errors.New(status.Convert(err).Message()))
		}
		return err
	}
}

// observe takes in what happened on the stream of a data plane.
func (st *stream) observe(e dataplane.Event) {
	st.show(func(p *Reader) {
		if p.Node == "" {
			st.server.o.Log.Info("data plane connected", "node", naming.Quote(e.Node), "address", p.Address)
		}
		p.Node, p.DataPlane = e.Node, true
		switch e.Kind {
		case dataplane.EventSubscribed:
			p.Types++
		case dataplane.EventSent:
			p.Sent = e.Version
		case dataplane.EventAck:
			p.Acked = e.Version
			if p.refusedType == e.TypeURL {
				p.Refused, p.refusedType = "", ""
			}
		case dataplane.EventNack:
			p.Refused, p.refusedType = refused(e), e.TypeURL
		}
	})
	if e.Kind == dataplane.EventNack {
		st.server.target.o.Observe(Observation{Kind: ObservedNack})
		if st.server.refusals.due("nack "+e.TypeURL+" "+st.from.String(), time.Now()) {
			st.server.o.Log.Warn("data plane refused an answer", "node", naming.Quote(e.Node), "refused", refused(e))
		}
	}
}

// refused says which type was refused and why, in the client's words.
func refused(e dataplane.Event) string {
	return strings.Trim(strconv.QuoteToASCII(strings.TrimPrefix(e.TypeURL, "type.googleapis.com/")), `"`) + ": " + strconv.QuoteToASCII(e.Message[:min(len(e.Message), maxClientText)])
}

// watched times how long a client takes to read.
type watched struct{ late chan struct{} }

func newWatched() watched { return watched{make(chan struct{}, 1)} }

func (w watched) slow() <-chan struct{} { return w.late }

// sending is called before an answer is sent, and what it returns afterwards.
func (w watched) sending() func() bool {
	return time.AfterFunc(readWithin, func() {
		select {
		case w.late <- struct{}{}:
		default:
		}
	}).Stop
}

// worldStream is a stream of the state of the world whose first request may be
// read ahead.
type worldStream struct {
	discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	watched

	target *Target
	ahead  *discovery.DiscoveryRequest
}

func (w *worldStream) form() form { return world{w, w.target} }

func (w *worldStream) first() (string, error) {
	r, err := w.Recv()
	w.ahead = r
	return r.GetTypeUrl(), err
}

func (w *worldStream) serve(ctx context.Context, to *dataplane.Server, observe func(dataplane.Event)) error {
	return to.Stream(ctx, w, observe) //nolint:wrapcheck // a status of grpc
}

// Recv implements the stream of grpc.
func (w *worldStream) Recv() (*discovery.DiscoveryRequest, error) {
	if r := w.ahead; r != nil {
		w.ahead = nil
		return r, nil
	}
	return w.AggregatedDiscoveryService_StreamAggregatedResourcesServer.Recv() //nolint:wrapcheck // a status of grpc, or io.EOF
}

// Send implements the stream of grpc.
func (w *worldStream) Send(r *discovery.DiscoveryResponse) error {
	defer w.sending()()
	return w.AggregatedDiscoveryService_StreamAggregatedResourcesServer.Send(r) //nolint:wrapcheck // a status of grpc
}

// differencesStream is a stream of the incremental form whose first request may
// be read ahead.
type differencesStream struct {
	discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	watched

	target *Target
	ahead  *discovery.DeltaDiscoveryRequest
}

func (d *differencesStream) form() form { return differences{d, d.target} }

func (d *differencesStream) first() (string, error) {
	r, err := d.Recv()
	d.ahead = r
	return r.GetTypeUrl(), err
}

func (d *differencesStream) serve(ctx context.Context, to *dataplane.Server, observe func(dataplane.Event)) error {
	return to.Delta(ctx, d, observe) //nolint:wrapcheck // a status of grpc
}

// Recv implements the stream of grpc.
func (d *differencesStream) Recv() (*discovery.DeltaDiscoveryRequest, error) {
	if r := d.ahead; r != nil {
		d.ahead = nil
		return r, nil
	}
	return d.AggregatedDiscoveryService_DeltaAggregatedResourcesServer.Recv() //nolint:wrapcheck // a status of grpc, or io.EOF
}

// Send implements the stream of grpc.
func (d *differencesStream) Send(r *discovery.DeltaDiscoveryResponse) error {
	defer d.sending()()
	return d.AggregatedDiscoveryService_DeltaAggregatedResourcesServer.Send(r) //nolint:wrapcheck // a status of grpc
}
