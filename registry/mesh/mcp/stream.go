package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// A clientStream is one client. Its handler supervises it, and one goroutine speaks the
// protocol. For an istiod one more reads requests, and one sends each answer. So only a
// client's own goroutines wait for it.
type clientStream struct {
	server   *Server
	variant  protocolVariant
	from     netip.Addr
	replaced chan struct{} // closed once another stream replaces this one
	isReader bool          // it asked for the served type; the server's mu guards it

	// Only session touches these.
	types      []*typeSubscription // in the order of their first requests
	knownBytes int                 // of what the client said it has
	nonce      int                 // of the last answer
	nacked     bool                // the client refused an answer, which was logged

	mu     sync.Mutex
	reader Reader
}

// A typeSubscription is the state of one type on a stream.
type typeSubscription struct {
	typeURL  string
	isServed bool
	nonce    string            // of an answer that is not confirmed; empty: none
	last     *servedSnapshot   // that was sent last; nil: none
	known    map[string]string // versions that the client had before that
}

// supervise serves a client until ctx ends, its stream breaks or it is refused.
func (st *clientStream) supervise(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	st.server.running.Go(func() { done <- st.run(ctx) })
	silent := time.NewTimer(askWithin)
	defer silent.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-done:
			return err
		case <-st.replaced:
			return st.refuse(RefusedStreams, codes.ResourceExhausted, errors.New("another stream replaced this one, which asks for nothing that is served"))
		case <-st.variant.slow():
			return st.refuse(RefusedSlow, codes.DeadlineExceeded, fmt.Errorf("an answer was not read within %s", readWithin))
		case <-silent.C:
			if st.shown().Types == 0 {
				return st.refuse(RefusedSilent, codes.DeadlineExceeded, fmt.Errorf("nothing was asked for within %s", askWithin))
			}
		}
	}
}

// run speaks the protocol. By the first request it knows whether the client is a data
// plane.
func (st *clientStream) run(ctx context.Context) error {
	if st.server.o.DataPlanes != nil {
		typeURL, err := st.variant.firstType()
		if err != nil {
			return st.lost(err)
		}
		if isDataPlane(typeURL) {
			return st.serveDataPlane(ctx)
		}
	}
	return st.session(ctx)
}

// session answers an istiod until ctx ends or the istiod is refused. It reads requests
// also while the istiod does not read an answer.
func (st *clientStream) session(ctx context.Context) error {
	requests, lost := st.receive(ctx)
	sent, isSending := make(chan error, 1), false
	for {
		set, changed := st.server.target.current()
		if !isSending {
			if send := st.next(set); send != nil {
				isSending = true
				st.server.running.Go(func() { sent <- send() })
			}
		}
		var err error
		select {
		case <-ctx.Done():
			return nil
		case err := <-lost:
			return err
		case r := <-requests:
			err = st.asked(r)
		case err = <-sent:
			isSending = false
		case <-changed:
		}
		if err != nil {
			return err
		}
	}
}

// lost returns why a stream ends that cannot be read any more: nil if the client ended
// it.
func (st *clientStream) lost(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case status.Code(err) == codes.ResourceExhausted: // a request that is too large
		return st.refuse(RefusedRequest, codes.ResourceExhausted, errors.New(status.Convert(err).Message()))
	}
	return err
}

// refuse counts and logs why a stream has to end, and returns it as a status.
func (st *clientStream) refuse(r Refusal, code codes.Code, err error) error {
	st.server.clientRefused(r, st.shown().Address, err)
	return status.Errorf(code, "%v", err)
}

// receive reads requests until the stream ends, and then sends why.
func (st *clientStream) receive(ctx context.Context) (<-chan xdsRequest, <-chan error) {
	requests, lost := make(chan xdsRequest), make(chan error, 1)
	st.server.running.Go(func() {
		for {
			r, err := st.variant.receive()
			if err != nil {
				lost <- st.lost(err) // before ctx is looked at, which grpc may have ended
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	})
	return requests, lost
}

// due returns what is to be sent; nil: nothing. That is the served set, if the client
// has confirmed another, or an empty one, once, for types that are not served.
func (s *typeSubscription) due(set *servedSnapshot) *servedSnapshot {
	switch first := s.last == nil; {
	case s.nonce != "":
	case s.isServed && set != nil && (first || s.last.version != set.version):
		return set
	case !s.isServed && first && isAnswered(s.typeURL):
		return &servedSnapshot{version: emptyVersion}
	}
	return nil
}

// emptyVersion is the version of the answers for types that are not served.
const emptyVersion = "none"

// next returns a function that sends the next answer; nil: none is due.
func (st *clientStream) next(set *servedSnapshot) (send func() error) {
	for _, sub := range st.types {
		next := sub.due(set)
		if next == nil {
			continue
		}
		st.nonce++
		nonce := strconv.Itoa(st.nonce)
		send := st.variant.answer(sub, next, nonce)
		sub.last, sub.known = next, nil // known is large, and the set is shared by all clients
		if send == nil {
			continue
		}
		sub.nonce = nonce
		return func() error {
			err := send()
			if err == nil && sub.isServed {
				st.show(func(r *Reader) { r.Sent = next.version })
			}
			return err
		}
	}
	return nil
}

// asked handles a request. The nonce of the first of a type does not count: istiod
// invents one. Later ones with another nonce than that of the last answer are
// ignored. An error ends the stream.
func (st *clientStream) asked(r xdsRequest) error {
	if err := excess(r); err != nil {
		return st.refuse(RefusedRequest, codes.ResourceExhausted, err)
	}
	if id := r.GetNode().GetId(); id != "" && st.shown().Node == "" {
		st.show(func(r *Reader) { r.Node = id })
		st.server.o.Log.Info("istiod connected", "node", naming.Quote(id), "address", st.shown().Address)
	}
	i := slices.IndexFunc(st.types, func(s *typeSubscription) bool { return s.typeURL == r.GetTypeUrl() })
	if i < 0 {
		return st.subscribe(r)
	}
	if sub := st.types[i]; sub.nonce != "" && sub.nonce == r.GetResponseNonce() {
		sub.nonce = ""
		st.acknowledged(sub, r)
	}
	return nil
}

// subscribe handles the first request of a type. Of types that are not served only
// the name is kept.
func (st *clientStream) subscribe(r xdsRequest) error {
	if len(st.types) >= maxTypes {
		return st.refuse(RefusedRequest, codes.ResourceExhausted, fmt.Errorf("a stream may ask for %d types", maxTypes))
	}
	sub := &typeSubscription{typeURL: r.GetTypeUrl(), isServed: isServedType(r.GetTypeUrl())}
	if sub.isServed {
		if first, ok := r.(*discovery.DeltaDiscoveryRequest); ok {
			sub.known = first.GetInitialResourceVersions()
		}
		for name, version := range sub.known {
			st.knownBytes += knownCost + len(name) + len(version)
		}
		if st.knownBytes > maxKnownBytes {
			return st.refuse(RefusedRequest, codes.ResourceExhausted, fmt.Errorf("%d bytes of what it says it has, at most %d", st.knownBytes, maxKnownBytes))
		}
		st.server.markReading(st)
	}
	st.types = append(st.types, sub)
	st.show(func(r *Reader) { r.Types = len(st.types) })
	return nil
}

// acknowledged handles a confirmation or refusal of the last answer. After a
// refusal nothing is sent before the next change: it would be refused again.
func (st *clientStream) acknowledged(sub *typeSubscription, r xdsRequest) {
	switch {
	case r.GetErrorDetail() != nil:
		st.server.target.o.Observe(Observation{Kind: ObservedNack})
		if !st.nacked { // once: a client may refuse answers at any rate
			st.nacked = true
			st.server.o.Log.Warn("istiod refused an answer", "type", naming.Quote(sub.typeURL), "reason", naming.Quote(r.GetErrorDetail().GetMessage()))
		}
	case sub.isServed:
		st.show(func(r *Reader) { r.Acked = sub.last.version })
		st.server.target.confirm(sub.last)
	}
}

func (st *clientStream) show(change func(*Reader)) {
	st.mu.Lock()
	defer st.mu.Unlock()
	change(&st.reader)
}

func (st *clientStream) shown() Reader {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.reader
}

// meshConfig is the suffix of the one type that is never answered: it is not about
// services, and istiod is ready without it.
const meshConfig = "/MeshConfig"

// isServedType reports whether a type is served. Up to 1.23 istiod asks for
// networking.istio.io/v1alpha3, later for v1, and answers have to repeat it. An
// unknown version gets one empty answer, as all types that are not served: istiod
// is not ready before every type was answered.
func isServedType(typeURL string) bool {
	version, ok := strings.CutPrefix(typeURL, "networking.istio.io/")
	version, kind, _ := strings.Cut(version, "/")
	return ok && kind == "ServiceEntry" && slices.Contains([]string{"v1", "v1beta1", "v1alpha3"}, version)
}

// isAnswered reports whether a type is answered at all.
func isAnswered(typeURL string) bool { return !strings.HasSuffix(typeURL, meshConfig) }

// excess returns which bound a request exceeds; nil: none.
func excess(r xdsRequest) error {
	if n := len(r.GetTypeUrl()); n > dataplane.MaxTypeURL {
		return fmt.Errorf("a type of %d bytes, at most %d", n, dataplane.MaxTypeURL)
	}
	if n := proto.Size(r.GetNode()); n > dataplane.MaxNode {
		return fmt.Errorf("a node of %d bytes, at most %d", n, dataplane.MaxNode)
	}
	return nil
}
