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

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/dataplane"
)

// A stream is one client. The goroutine of session owns all of it but reader;
// one more reads requests, and one sends answers. So only a client's own
// goroutines wait for it.
type stream struct {
	server     *Server
	variant    variant
	from       netip.Addr
	replaced   chan struct{}   // closed once another stream replaces this one
	isReader   bool            // it asked for the served type; the server's mu guards it
	types      []*subscription // in the order of their first requests
	knownBytes int             // of what the client said it has
	revision   string          // of the istiod; empty: it gets the resources of all
	nonce      int             // of the last answer
	busy       bool            // an answer is being sent
	nacked     bool            // the client refused an answer, which was logged

	mu     sync.Mutex
	reader Reader
}

// A request asks for a type, and confirms or refuses an answer.
type request struct {
	node    *corev3.Node
	typeURL string
	nonce   string
	known   map[string]string // of a first request: versions that the client has, by resource; in the incremental variant alone
	refused string            // why the client refused the answer
	isNack  bool
}

// A subscription is the state of one type on a stream.
type subscription struct {
	typeURL  string
	isServed bool
	nonce    string            // of an answer that is not confirmed; empty: none
	last     view              // that was sent last
	known    map[string]string // versions that the client had before that; the sender owns it
}

// A view is what an istiod is sent of a set; the set is nil if it was sent
// nothing.
type view struct {
	set      *snapshot
	revision string // of the istiod; empty: all resources are for it
}

// has reports whether a resource is for the istiod.
func (v view) has(r *resource) bool {
	return r.revision == "" || v.revision == "" || v.revision == r.revision
}

// versions returns the versions of what the istiod is sent, by resource.
func (v view) versions() map[string]string {
	versions := make(map[string]string, len(v.set.content))
	for _, r := range v.set.content {
		if v.has(r) {
			versions[r.name] = r.version
		}
	}
	return versions
}

// An answer is the next view for a subscription.
type answer struct {
	to     *subscription
	before view
	view
	nonce string
}

// A sendResult is the result of an answer.
type sendResult struct {
	to      *subscription
	nothing bool // there was no difference to send
	err     error
}

// session answers a stream until ctx ends or the client is refused.
func (st *stream) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requests, lost := st.receive(ctx)
	answers, done := st.sending(ctx)
	late := time.NewTimer(askWithin)
	defer late.Stop()
	for {
		set, changed := st.server.target.current()
		if a, ok := st.due(set); ok {
			answers <- a // the sender is free
			st.busy = true
			late.Reset(readWithin)
		}
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-st.replaced:
			err = st.endReplaced()
		case err := <-lost:
			return err
		case r := <-requests:
			err = st.asked(r)
		case d := <-done:
			err = st.wasSent(d)
		case <-late.C:
			err = st.overdue()
		case <-changed:
		}
		if err != nil {
			return err
		}
	}
}

func (st *stream) endReplaced() error {
	return st.refuse(RefusedStreams, codes.ResourceExhausted, errors.New("another stream replaced this one, which asks for nothing that is served"))
}

func (st *stream) wasSent(d sendResult) error {
	if st.busy = false; d.nothing {
		d.to.nonce = ""
	}
	return d.err
}

// overdue ends a stream whose client is too slow.
func (st *stream) overdue() error {
	switch {
	case st.busy:
		return st.refuse(RefusedSlow, codes.DeadlineExceeded, fmt.Errorf("an answer was not read within %s", readWithin))
	case len(st.types) == 0:
		return st.refuse(RefusedSilent, codes.DeadlineExceeded, fmt.Errorf("nothing was asked for within %s", askWithin))
	}
	return nil
}

// lost returns why a stream ends that cannot be read any more.
func (st *stream) lost(err error) error {
	if status.Code(err) == codes.ResourceExhausted { // a request that is too large
		return st.refuse(RefusedRequest, codes.ResourceExhausted, errors.New(status.Convert(err).Message()))
	}
	return err
}

// refuse counts and logs why a stream has to end, and returns it as a status.
func (st *stream) refuse(r Refusal, code codes.Code, err error) error {
	st.server.clientRefused(r, st.shown().Address, err)
	return status.Errorf(code, "%v", err)
}

// receive reads requests until the stream ends, and then sends why: nil if the
// client ended it.
func (st *stream) receive(ctx context.Context) (<-chan request, <-chan error) {
	requests, lost := make(chan request), make(chan error, 1)
	st.server.running.Go(func() {
		for {
			r, err := st.variant.receive()
			if errors.Is(err, io.EOF) {
				lost <- nil
				return
			}
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

// sending sends one answer after the other, and reports the result of each. It ends
// with the stream, even if the client does not read.
func (st *stream) sending(ctx context.Context) (chan<- answer, <-chan sendResult) {
	answers, done := make(chan answer, 1), make(chan sendResult, 1)
	st.server.running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case a := <-answers:
				nothing, err := st.variant.send(a)
				if a.to.isServed && err == nil && !nothing {
					st.show(func(r *Reader) { r.Sent = a.set.version })
				}
				done <- sendResult{a.to, nothing, err}
			}
		}
	})
	return answers, done
}

// due returns the next answer: the set, if the client has confirmed another, and
// nothing, once, for types that are not served.
func (st *stream) due(set *snapshot) (answer, bool) {
	if st.busy {
		return answer{}, false
	}
	for _, sub := range st.types {
		switch first := sub.last.set == nil; {
		case sub.nonce != "":
		case sub.isServed && set != nil && (first || sub.last.set.version != set.version):
			return st.answer(sub, set), true
		case !sub.isServed && first && isAnswered(sub.typeURL):
			return st.answer(sub, &snapshot{version: emptyVersion}), true
		}
	}
	return answer{}, false
}

// emptyVersion is the version of the answers for types that are not served.
const emptyVersion = "none"

func (st *stream) answer(sub *subscription, set *snapshot) answer {
	st.nonce++
	a := answer{to: sub, before: sub.last, view: view{set, st.revision}, nonce: strconv.Itoa(st.nonce)}
	sub.nonce, sub.last = a.nonce, a.view
	return a
}

// asked handles a request. The nonce of the first of a type does not count: istiod
// invents one. Later ones with another nonce than that of the last answer are
// ignored. An error ends the stream.
func (st *stream) asked(r request) error {
	if err := r.excess(); err != nil {
		return st.refuse(RefusedRequest, codes.ResourceExhausted, err)
	}
	if id := r.node.GetId(); id != "" && st.shown().Node == "" {
		if st.server.target.o.RevisionFilter {
			st.revision = r.node.GetMetadata().GetFields()["ISTIO_REVISION"].GetStringValue()
		}
		st.show(func(r *Reader) { r.Node = id })
		st.server.o.Log.Info("istiod connected", "node", naming.Quote(id), "address", st.shown().Address)
	}
	i := slices.IndexFunc(st.types, func(s *subscription) bool { return s.typeURL == r.typeURL })
	if i < 0 {
		return st.subscribe(r)
	}
	if sub := st.types[i]; sub.nonce != "" && sub.nonce == r.nonce {
		sub.nonce = ""
		st.acknowledged(sub, r)
	}
	return nil
}

// subscribe handles the first request of a type. Of types that are not served only
// the name is kept.
func (st *stream) subscribe(r request) error {
	if len(st.types) >= maxTypes {
		return st.refuse(RefusedRequest, codes.ResourceExhausted, fmt.Errorf("a stream may ask for %d types", maxTypes))
	}
	sub := &subscription{typeURL: r.typeURL, isServed: isServedType(r.typeURL)}
	if sub.isServed {
		if st.knownBytes += r.size(); st.knownBytes > maxKnownBytes {
			return st.refuse(RefusedRequest, codes.ResourceExhausted, fmt.Errorf("%d bytes of what it says it has, at most %d", st.knownBytes, maxKnownBytes))
		}
		sub.known = r.known
		st.server.markReading(st)
	}
	st.types = append(st.types, sub)
	st.show(func(r *Reader) { r.Types = len(st.types) })
	return nil
}

// acknowledged handles a confirmation or refusal of the last answer. After a
// refusal nothing is sent before the next change: it would be refused again.
func (st *stream) acknowledged(sub *subscription, r request) {
	switch {
	case r.isNack:
		st.server.target.o.Observe(Observation{Kind: ObservedNack})
		if !st.nacked { // once: a client may refuse answers at any rate
			st.nacked = true
			st.server.o.Log.Warn("istiod refused an answer", "type", naming.Quote(sub.typeURL), "reason", naming.Quote(r.refused))
		}
	case sub.isServed:
		st.show(func(r *Reader) { r.Acked = sub.last.set.version })
		st.server.target.confirm(sub.last.set)
	}
}

func (st *stream) show(change func(*Reader)) {
	st.mu.Lock()
	defer st.mu.Unlock()
	change(&st.reader)
}

func (st *stream) shown() Reader {
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
func (r request) excess() error {
	if n := len(r.typeURL); n > dataplane.MaxTypeURL {
		return fmt.Errorf("a type of %d bytes, at most %d", n, dataplane.MaxTypeURL)
	}
	if n := proto.Size(r.node); n > dataplane.MaxNode {
		return fmt.Errorf("a node of %d bytes, at most %d", n, dataplane.MaxNode)
	}
	return nil
}

func (r request) size() int {
	n := 0
	for name, version := range r.known {
		n += knownCost + len(name) + len(version)
	}
	return n
}
