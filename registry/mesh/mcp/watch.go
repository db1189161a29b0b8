package mcp

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// The types of istiod's requests. Up to 1.23 it asks for
// networking.istio.io/v1alpha3, later for v1; answers have to repeat the type
// that was asked for.
const (
	ourGroup   = "networking.istio.io/"
	ourKind    = "/ServiceEntry"
	meshConfig = "/MeshConfig"
)

// A watch is one request that waits for its answer. Exactly one of the two
// halves is set.
type watch struct {
	ours  bool
	sotw  *discovery.DiscoveryRequest
	out   chan cache.Response
	delta *discovery.DeltaDiscoveryRequest
	outD  chan cache.DeltaResponse
	known map[string]string // delta: what the client has, by version
}

// CreateWatch implements cache.ConfigWatcher: types that are not ours are
// answered once with nothing, because istiod is not ready before every type
// was answered, and the mesh configuration never is.
//
// What the client has is what it was sent on this stream, whatever the version
// and nonce of its request say: istiod's first nonces are made up.
func (t *Target) CreateWatch(req *cache.Request, sub cache.Subscription, out chan cache.Response) (func(), error) {
	w := &watch{ours: ours(req.GetTypeUrl()), sotw: req, out: out}
	t.mu.Lock()
	defer t.mu.Unlock()
	has := sub.ReturnedResources()[everything]
	switch {
	case req.GetErrorDetail() != nil:
		// Refused: asking again at once would get the same. istiod never does
		// this; whoever does waits for the next change.
		t.o.Observe(Observation{Kind: ObservedNack})
	case w.ours && t.pushed.version != "" && has != t.pushed.version:
		t.answer(w)
		return nil, nil //nolint:nilnil // no watch is left to be cancelled
	case !w.ours && has == "" && !strings.HasSuffix(req.GetTypeUrl(), meshConfig):
		out <- sent(req, &discovery.DiscoveryResponse{TypeUrl: req.GetTypeUrl(), VersionInfo: emptyVersion})
		return nil, nil //nolint:nilnil // as above
	case w.ours && has != "" && req.GetVersionInfo() == has:
		t.confirmed()
	}
	return t.wait(w), nil
}

// CreateDeltaWatch implements cache.ConfigWatcher.
func (t *Target) CreateDeltaWatch(req *cache.DeltaRequest, sub cache.Subscription, out chan cache.DeltaResponse) (func(), error) {
	w := &watch{ours: ours(req.GetTypeUrl()), delta: req, outD: out, known: sub.ReturnedResources()}
	t.mu.Lock()
	defer t.mu.Unlock()
	first := req.GetResponseNonce() == ""
	switch {
	case req.GetErrorDetail() != nil:
		t.o.Observe(Observation{Kind: ObservedNack})
	case w.ours && t.pushed.version != "" && (first || t.differs(w)):
		t.answer(w)
		return nil, nil //nolint:nilnil // no watch is left to be cancelled
	case !w.ours && first && !strings.HasSuffix(req.GetTypeUrl(), meshConfig):
		out <- &cache.DeltaPassthroughResponse{DeltaRequest: req, DeltaDiscoveryResponse: &discovery.DeltaDiscoveryResponse{TypeUrl: req.GetTypeUrl()}}
		return nil, nil //nolint:nilnil // as above
	case w.ours && !first:
		t.confirmed()
	}
	return t.wait(w), nil
}

// everything is the name under which a stream remembers the version of a type
// that it was sent last.
const everything = "*"

func sent(req *discovery.DiscoveryRequest, res *discovery.DiscoveryResponse) cache.Response {
	return &cache.PassthroughResponse{
		Request: req, DiscoveryResponse: res, ReturnedResources: map[string]string{everything: res.GetVersionInfo()},
	}
}

// emptyVersion is the version of the answers for types that are not ours.
const emptyVersion = "none"

func ours(typeURL string) bool {
	return strings.HasPrefix(typeURL, ourGroup) && strings.HasSuffix(typeURL, ourKind)
}

// confirmed notes that an istiod took in what is served.
func (t *Target) confirmed() {
	if t.acked.version != t.pushed.version {
		t.acked = t.pushed
		t.wake()
	}
}

func (t *Target) wait(w *watch) func() {
	t.watches[w] = struct{}{}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watches, w)
	}
}

// answer sends what is served to a watch, which ends by it. The channels have
// room for one answer. The caller holds mu.
func (t *Target) answer(w *watch) {
	delete(t.watches, w)
	if w.sotw != nil {
		w.out <- t.whole(w.sotw)
		return
	}
	if t.differs(w) || w.delta.GetResponseNonce() == "" {
		w.outD <- t.difference(w)
	} else {
		t.watches[w] = struct{}{}
	}
}

func (t *Target) whole(req *discovery.DiscoveryRequest) cache.Response {
	res := &discovery.DiscoveryResponse{TypeUrl: req.GetTypeUrl(), VersionInfo: t.pushed.version}
	res.Resources = make([]*anypb.Any, 0, len(t.pushed.content))
	for _, r := range t.pushed.content {
		if t.meant(r, req.GetNode()) {
			res.Resources = append(res.Resources, r.wire)
		}
	}
	return sent(req, res)
}

func (t *Target) difference(w *watch) cache.DeltaResponse {
	res := &discovery.DeltaDiscoveryResponse{TypeUrl: w.delta.GetTypeUrl(), SystemVersionInfo: t.pushed.version}
	next := make(map[string]string, len(t.pushed.content))
	for _, r := range t.pushed.content {
		if !t.meant(r, w.delta.GetNode()) {
			continue
		}
		next[r.name] = r.version
		if w.known[r.name] != r.version {
			res.Resources = append(res.Resources, &discovery.Resource{Name: r.name, Version: r.version, Resource: r.wire})
		}
	}
	for name := range w.known {
		if _, still := next[name]; !still {
			res.RemovedResources = append(res.RemovedResources, name)
		}
	}
	return &cache.DeltaPassthroughResponse{DeltaRequest: w.delta, NextVersionMap: next, DeltaDiscoveryResponse: res}
}

// differs reports whether a delta client has anything else than what is
// served.
func (t *Target) differs(w *watch) bool {
	n := 0
	for _, r := range t.pushed.content {
		if !t.meant(r, w.delta.GetNode()) {
			continue
		}
		n++
		if w.known[r.name] != r.version {
			return true
		}
	}
	return n != len(w.known)
}

// meant reports whether a resource is for an istiod.
func (t *Target) meant(r *resource, node *corev3.Node) bool {
	if !t.o.RevisionFilter || r.revision == "" {
		return true
	}
	revision := node.GetMetadata().GetFields()["ISTIO_REVISION"].GetStringValue()
	return revision == "" || revision == r.revision
}
