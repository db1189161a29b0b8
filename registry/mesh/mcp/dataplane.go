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

// updateDataPlanes has data planes sent what istiods are sent, until ctx ends.
func (s *Server) updateDataPlanes(ctx context.Context) {
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

// An openedStream is a stream before its first request was read, in one of the two
// variants of the protocol: an istiod or a data plane may be asking.
type openedStream interface {
	istiod() istiodStream
	firstType() (typeURL string, err error) // reads the first request, which the others read again
	serve(ctx context.Context, to *dataplane.Server, observe func(dataplane.Event)) error
	slow() <-chan struct{} // ready once a client takes too long to read
}

// askedByDataPlane reads the first request of a stream and reports whether a data
// plane asks.
func (st *stream) askedByDataPlane(ctx context.Context, opened openedStream) (bool, error) {
	type asked struct {
		url string
		err error
	}
	first := make(chan asked, 1)
	st.server.running.Go(func() {
		url, err := opened.firstType()
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
func (st *stream) serveDataPlane(ctx context.Context, opened openedStream) error {
	st.server.markReading(st)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	st.server.running.Go(func() { done <- opened.serve(ctx, st.server.o.DataPlanes, st.observe) })
	select {
	case <-ctx.Done():
		return nil
	case <-opened.slow():
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
	st.show(func(r *Reader) {
		if r.Node == "" {
			st.server.o.Log.Info("data plane connected", "node", naming.Quote(e.Node), "address", r.Address)
		}
		r.Node, r.DataPlane = e.Node, true
		switch e.Kind {
		case dataplane.EventSubscribed:
			r.Types++
		case dataplane.EventSent:
			r.Sent = e.Version
		case dataplane.EventAck:
			r.Acked = e.Version
			if r.refusedType == e.TypeURL {
				r.Refused, r.refusedType = "", ""
			}
		case dataplane.EventNack:
			r.Refused, r.refusedType = refused(e), e.TypeURL
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

// readTimer times how long a client takes to read.
type readTimer struct{ late chan struct{} }

func newReadTimer() readTimer { return readTimer{make(chan struct{}, 1)} }

func (t readTimer) slow() <-chan struct{} { return t.late }

// sending is called before an answer is sent, and what it returns afterwards.
func (t readTimer) sending() func() bool {
	return time.AfterFunc(readWithin, func() {
		select {
		case t.late <- struct{}{}:
		default:
		}
	}).Stop
}

// sotwStream is a stream of the state of the world whose first request may be
// read ahead.
type sotwStream struct {
	discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	readTimer

	target *Target
	ahead  *discovery.DiscoveryRequest
}

func (s *sotwStream) istiod() istiodStream { return sotw{s, s.target} }

func (s *sotwStream) firstType() (string, error) {
	r, err := s.Recv()
	s.ahead = r
	return r.GetTypeUrl(), err
}

func (s *sotwStream) serve(ctx context.Context, to *dataplane.Server, observe func(dataplane.Event)) error {
	return to.Stream(ctx, s, observe) //nolint:wrapcheck // a status of grpc
}

// Recv implements the stream of grpc.
func (s *sotwStream) Recv() (*discovery.DiscoveryRequest, error) {
	if r := s.ahead; r != nil {
		s.ahead = nil
		return r, nil
	}
	return s.AggregatedDiscoveryService_StreamAggregatedResourcesServer.Recv() //nolint:wrapcheck // a status of grpc, or io.EOF
}

// Send implements the stream of grpc.
func (s *sotwStream) Send(r *discovery.DiscoveryResponse) error {
	defer s.sending()()
	return s.AggregatedDiscoveryService_StreamAggregatedResourcesServer.Send(r) //nolint:wrapcheck // a status of grpc
}

// deltaStream is a stream of the incremental variant whose first request may
// be read ahead.
type deltaStream struct {
	discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer
	readTimer

	target *Target
	ahead  *discovery.DeltaDiscoveryRequest
}

func (d *deltaStream) istiod() istiodStream { return delta{d, d.target} }

func (d *deltaStream) firstType() (string, error) {
	r, err := d.Recv()
	d.ahead = r
	return r.GetTypeUrl(), err
}

func (d *deltaStream) serve(ctx context.Context, to *dataplane.Server, observe func(dataplane.Event)) error {
	return to.Delta(ctx, d, observe) //nolint:wrapcheck // a status of grpc
}

// Recv implements the stream of grpc.
func (d *deltaStream) Recv() (*discovery.DeltaDiscoveryRequest, error) {
	if r := d.ahead; r != nil {
		d.ahead = nil
		return r, nil
	}
	return d.AggregatedDiscoveryService_DeltaAggregatedResourcesServer.Recv() //nolint:wrapcheck // a status of grpc, or io.EOF
}

// Send implements the stream of grpc.
func (d *deltaStream) Send(r *discovery.DeltaDiscoveryResponse) error {
	defer d.sending()()
	return d.AggregatedDiscoveryService_DeltaAggregatedResourcesServer.Send(r) //nolint:wrapcheck // a status of grpc
}
