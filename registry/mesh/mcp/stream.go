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

// A clientStream is the stream of one client. The gRPC handler supervises it, and one
// goroutine speaks the protocol. For an istiod, one more goroutine receives requests, and
// one sends each response, so that only goroutines of this stream wait for its client.
//
// An istiod's stream, by type:
//
//  1. istiod requests a type. The nonce of the first request is ignored.
//  2. The server sends the newest set, for a type that is not served an empty one, with a
//     nonce. It sends nothing more of that type until the nonce comes back.
//  3. istiod returns the nonce: it confirms the response, or rejects it with an error.
//  4. The server waits until a newer set than the one sent is served, and goes on with 2.
type clientStream struct {
	// Immutable.
	server   *Server
	variant  protocolVariant
	from     netip.Addr
	replaced chan struct{} // closed by the server when another stream takes its place

	// isReader is true once the client requested the served type. Guarded by server.mu.
	isReader bool

	// Only serveIstiod touches these.
	subscriptions       []*typeSubscription // in the order of their first requests
	initialVersionBytes int                 // size of all initialVersions
	nonce               int                 // of the last response
	loggedRejection     bool                // a rejected response was logged

	// Guarded by mu.
	mu     sync.Mutex
	reader Reader
}

// A typeSubscription is the state of one type on an istiod's stream. Only serveIstiod
// touches it.
type typeSubscription struct {
	typeURL         string
	isServed        bool
	pendingNonce    string            // of a response that is neither confirmed nor rejected; empty: none
	lastSent        *servedSnapshot   // nil before the first response
	initialVersions map[string]string // versions that the client had before the first response
}

// supervise serves a client until ctx ends, its stream breaks or it is refused.
func (st *clientStream) supervise(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	st.server.running.Go(func() { done <- st.run(ctx) })
	silent := time.NewTimer(firstRequestWithin)
	defer silent.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-done:
			return err
		case <-st.replaced:
			err := errors.New("another stream replaced this one, which requested no type that is served")
			return st.refuse(RefusedStreams, codes.ResourceExhausted, err)
		case <-st.variant.slow():
			err := fmt.Errorf("a response was not read within %s", readResponseWithin)
			return st.refuse(RefusedSlow, codes.DeadlineExceeded, err)
		case <-silent.C:
			if st.readerCopy().Types == 0 {
				err := fmt.Errorf("nothing was requested within %s", firstRequestWithin)
				return st.refuse(RefusedSilent, codes.DeadlineExceeded, err)
			}
		}
	}
}

// run speaks the protocol until the stream ends. The type of the first request tells
// whether the client is a data plane.
func (st *clientStream) run(ctx context.Context) error {
	if st.server.o.DataPlanes != nil {
		typeURL, err := st.variant.peekType()
		if err != nil {
			return st.explainReceiveError(err)
		}
		if isDataPlane(typeURL) {
			return st.serveDataPlane(ctx)
		}
	}
	return st.serveIstiod(ctx)
}

// serveIstiod serves an istiod until ctx ends, the stream fails or the istiod is refused.
// It handles requests also while a response is being sent.
func (st *clientStream) serveIstiod(ctx context.Context) error {
	requests, lost := st.receiveRequests(ctx)
	sent, isSending := make(chan error, 1), false
	for {
		set, changed := st.server.target.currentSnapshot()
		if !isSending {
			if send := st.nextResponse(set); send != nil {
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
			err = st.handleRequest(r)
		case err = <-sent:
			isSending = false
		case <-changed:
		}
		if err != nil {
			return err
		}
	}
}

// explainReceiveError returns the error with which a stream ends after a receive failed.
// It is nil if the client closed the stream.
func (st *clientStream) explainReceiveError(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case status.Code(err) == codes.ResourceExhausted: // the request is larger than maxMessage
		return st.refuse(RefusedRequest, codes.ResourceExhausted, errors.New(status.Convert(err).Message()))
	}
	return err
}

// refuse observes and logs that the client is refused. It returns the error as the status
// with which the stream ends.
func (st *clientStream) refuse(r Refusal, code codes.Code, err error) error {
	st.server.clientRefused(r, st.readerCopy().Address, err)
	return status.Errorf(code, "%v", err)
}

// receiveRequests receives requests in a goroutine. When a receive fails, it sends the
// error of explainReceiveError and ends.
func (st *clientStream) receiveRequests(ctx context.Context) (<-chan xdsRequest, <-chan error) {
	requests, lost := make(chan xdsRequest), make(chan error, 1)
	st.server.running.Go(func() {
		for {
			r, err := st.variant.receive()
			if err != nil {
				lost <- st.explainReceiveError(err) // whether or not grpc has canceled ctx
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

// pendingSnapshot returns the set that has to be sent next, or nil if none. It is the served
// set if the client has another version, or an empty one, once, for a type that is not
// served.
func (s *typeSubscription) pendingSnapshot(set *servedSnapshot) *servedSnapshot {
	switch first := s.lastSent == nil; {
	case s.pendingNonce != "":
	case s.isServed && set != nil && (first || s.lastSent.version != set.version):
		return set
	case !s.isServed && first && isAnswered(s.typeURL):
		return &servedSnapshot{version: emptyVersion}
	}
	return nil
}

// emptyVersion is the version of the answers for types that are not served.
const emptyVersion = "none"

// nextResponse returns a function that sends the next response, or nil if there is nothing
// to send.
func (st *clientStream) nextResponse(set *servedSnapshot) (send func() error) {
	for _, sub := range st.subscriptions {
		next := sub.pendingSnapshot(set)
		if next == nil {
			continue
		}
		st.nonce++
		nonce := strconv.Itoa(st.nonce)
		send := st.variant.response(sub, next, nonce)
		sub.lastSent, sub.initialVersions = next, nil // frees the versions, which are large
		if send == nil {
			continue
		}
		sub.pendingNonce = nonce
		return func() error {
			err := send()
			if err == nil && sub.isServed {
				st.updateReader(func(r *Reader) { r.Sent = next.version })
			}
			return err
		}
	}
	return nil
}

// handleRequest handles a request of an istiod. An error ends the stream. The nonce of the
// first request of a type is ignored, because istiod invents one. A later request is
// ignored unless it has the nonce of the last response.
func (st *clientStream) handleRequest(r xdsRequest) error {
	if err := checkRequestSize(r); err != nil {
		return st.refuse(RefusedRequest, codes.ResourceExhausted, err)
	}
	if id := r.GetNode().GetId(); id != "" && st.readerCopy().Node == "" {
		st.updateReader(func(r *Reader) { r.Node = id })
		st.server.o.Log.Info("istiod connected", "node", naming.Quote(id), "address", st.readerCopy().Address)
	}
	i := slices.IndexFunc(st.subscriptions, func(s *typeSubscription) bool { return s.typeURL == r.GetTypeUrl() })
	if i < 0 {
		return st.subscribe(r)
	}
	if sub := st.subscriptions[i]; sub.pendingNonce != "" && sub.pendingNonce == r.GetResponseNonce() {
		sub.pendingNonce = ""
		st.handleConfirmation(sub, r)
	}
	return nil
}

// subscribe handles the first request of a type. An error ends the stream. For a type that
// is not served, only its name is kept.
func (st *clientStream) subscribe(r xdsRequest) error {
	if len(st.subscriptions) >= maxTypes {
		err := fmt.Errorf("a stream may request at most %d types", maxTypes)
		return st.refuse(RefusedRequest, codes.ResourceExhausted, err)
	}
	sub := &typeSubscription{typeURL: r.GetTypeUrl(), isServed: isServedType(r.GetTypeUrl())}
	if sub.isServed {
		if first, ok := r.(*discovery.DeltaDiscoveryRequest); ok {
			sub.initialVersions = first.GetInitialResourceVersions()
		}
		for name, version := range sub.initialVersions {
			st.initialVersionBytes += mapEntryCost + len(name) + len(version)
		}
		if st.initialVersionBytes > maxInitialVersionBytes {
			n := st.initialVersionBytes
			err := fmt.Errorf("initial resource versions of %d bytes, at most %d", n, maxInitialVersionBytes)
			return st.refuse(RefusedRequest, codes.ResourceExhausted, err)
		}
		st.server.markReader(st)
	}
	st.subscriptions = append(st.subscriptions, sub)
	st.updateReader(func(r *Reader) { r.Types = len(st.subscriptions) })
	return nil
}

// handleConfirmation handles the confirmation or rejection of the last response. After a
// rejection nothing is sent before the next change, because the same response would be
// rejected again.
func (st *clientStream) handleConfirmation(sub *typeSubscription, r xdsRequest) {
	switch {
	case r.GetErrorDetail() != nil:
		st.server.target.o.Observe(Observation{Kind: ObservedNack})
		if !st.loggedRejection { // once, because a client may reject responses at any rate
			st.loggedRejection = true
			st.server.o.Log.Warn("istiod rejected a response",
				"type", naming.Quote(sub.typeURL), "reason", naming.Quote(r.GetErrorDetail().GetMessage()))
		}
	case sub.isServed:
		st.updateReader(func(r *Reader) { r.Acked = sub.lastSent.version })
		st.server.target.recordConfirmed(sub.lastSent)
	}
}

// updateReader changes the Reader that others see.
func (st *clientStream) updateReader(change func(*Reader)) {
	st.mu.Lock()
	defer st.mu.Unlock()
	change(&st.reader)
}

func (st *clientStream) readerCopy() Reader {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.reader
}

// meshConfig is the suffix of the one type that is never answered. It has no services,
// and istiod becomes ready without it.
const meshConfig = "/MeshConfig"

// isServedType reports whether a type is served. istiod requests ServiceEntries of
// networking.istio.io/v1alpha3 up to 1.23, and of v1 later; responses repeat the version.
// Any other type gets one empty response, because istiod becomes ready only after every
// type was answered.
func isServedType(typeURL string) bool {
	version, ok := strings.CutPrefix(typeURL, "networking.istio.io/")
	version, kind, _ := strings.Cut(version, "/")
	return ok && kind == "ServiceEntry" && slices.Contains([]string{"v1", "v1beta1", "v1alpha3"}, version)
}

// isAnswered reports whether a type that is not served gets an empty response.
func isAnswered(typeURL string) bool { return !strings.HasSuffix(typeURL, meshConfig) }

// checkRequestSize returns an error if a part of a request exceeds its bound.
func checkRequestSize(r xdsRequest) error {
	if n := len(r.GetTypeUrl()); n > dataplane.MaxTypeURL {
		return fmt.Errorf("type URL of %d bytes, at most %d", n, dataplane.MaxTypeURL)
	}
	if n := proto.Size(r.GetNode()); n > dataplane.MaxNode {
		return fmt.Errorf("node of %d bytes, at most %d", n, dataplane.MaxNode)
	}
	return nil
}
