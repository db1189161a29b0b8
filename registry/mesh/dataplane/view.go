package dataplane

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// A view is what one stream is sent of the store: a cache of go-control-plane's
// for that stream alone. What a stream gets is worked out when it is sent, so
// that changes gather while a client does not read.
type view struct {
	store *store

	mu        sync.Mutex
	namespace string
	locality  string // of the client: region/zone/sub-zone; empty: nowhere
	subs      map[string]*subscription
	warming   map[string]struct{} // clusters that were sent whose endpoints were not
	warmUntil *time.Timer         // when routes are sent all the same; nil while none wait
	released  uint64              // revision whose routes wait for nothing any more
}

var _ cache.Cache = (*view)(nil)

// A subscription is what a stream asked for of one type.
type subscription struct {
	url      string
	gone     bool   // it can be sent what is gone
	typed    *typed // nil: a type that nothing is served of
	wildcard bool
	names    map[string]struct{}
	since    uint64            // revision up to which it was sent everything
	first    bool              // nothing was sent yet
	fresh    map[string]string // names to be sent whatever their revision, with the version that the client has
	known    map[string]string // of a first wildcard: versions that the client has
	signal   func()            // has the stream ask for what is due; nil while it does not wait
	opened   int               // how often signal was set
}

// openView returns a view that the store wakes until it is closed.
func (s *store) openView() *view {
	v := &view{store: s, subs: make(map[string]*subscription), warming: make(map[string]struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views[v] = struct{}{}
	return v
}

func (v *view) close() {
	v.store.mu.Lock()
	delete(v.store.views, v)
	v.store.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.warmUntil != nil {
		v.warmUntil.Stop()
	}
}

// wake signals to the stream which types have anything to be sent.
func (v *view) wake() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.store.mu.RLock()
	defer v.store.mu.RUnlock()
	for _, url := range sendingOrder() {
		if s := v.subs[url]; s != nil {
			v.signal(s)
		}
	}
}

// signal has the stream ask for what is due to a subscription, if anything is.
// The caller holds both locks.
func (v *view) signal(s *subscription) {
	switch {
	case s.signal == nil:
	case v.isDue(s):
		s.signal()
		s.signal = nil
	case !s.first && !v.waits(s):
		s.since = v.store.revision // nothing up to here is for this stream
	}
}

// isDue reports whether there is anything to be sent.
func (v *view) isDue(s *subscription) bool {
	switch {
	case s.typed == nil:
		return s.first || len(s.fresh) > 0
	case v.store.revision == 0 || v.waits(s):
		return false
	case s.first || len(s.fresh) > 0:
		return true
	}
	for r := range s.typed.since(s.since) {
		if s.wants(r) && (v.sees(s, r) || s.gone && r.wasVisible(v.namespace)) {
			return true
		}
	}
	return false
}

// waits reports whether a subscription is sent nothing yet. Make before break:
// routes wait for new clusters that they may lead to, and for their endpoints.
func (v *view) waits(s *subscription) bool {
	all := v.subs[resource.ClusterType]
	if s.url != resource.ListenerType && s.url != resource.RouteType || all == nil || !all.wildcard {
		return false
	}
	if came := all.typed.came; len(v.warming) == 0 && (came <= all.since || came <= v.released) {
		return false
	}
	if v.warmUntil == nil {
		v.warmUntil = time.AfterFunc(warmWithin, v.warmed)
	}
	return true
}

// sees reports whether the stream is sent a resource, which nobody replaced.
func (v *view) sees(s *subscription, r *stored) bool {
	return s.typed.find(r.name, v.namespace) == r
}

// wants reports whether a subscription is for a resource.
func (s *subscription) wants(r *stored) bool {
	if s.wildcard && !r.byNameOnly {
		return true
	}
	_, named := s.names[r.name]
	return named
}

// subscribe takes in what a request asks for, and returns what takes back the
// wait for what is due. The caller holds mu.
func (v *view) subscribe(s *subscription, signal func()) func() {
	v.store.mu.RLock()
	defer v.store.mu.RUnlock()
	s.opened++
	opened := s.opened
	s.signal = signal
	v.signal(s)
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if s.opened == opened {
			s.signal = nil
		}
	}
}

// of returns the subscription to a type, and notes where the client is.
// The caller holds mu.
func (v *view) of(url string, node *corev3.Node) *subscription {
	v.namespace, v.locality = namespaceOf(node), localityName(node.GetLocality())
	s := v.subs[url]
	if s == nil {
		s = &subscription{url: url, typed: v.store.types[url], first: true, fresh: make(map[string]string)}
		v.subs[url] = s
	}
	return s
}

// namespaceOf returns the namespace of a node: what it says, or that of its id
// as istio's sidecars have it, `sidecar~ip~name.namespace~domain`.
func namespaceOf(node *corev3.Node) string {
	if named := node.GetMetadata().GetFields()["NAMESPACE"].GetStringValue(); named != "" {
		return named
	}
	const parts = 4
	id := strings.Split(node.GetId(), "~")
	if len(id) != parts {
		return ""
	}
	_, namespace, _ := strings.Cut(id[2], ".")
	return namespace
}

func localityName(l *corev3.Locality) string {
	return strings.TrimRight(l.GetRegion()+"/"+l.GetZone()+"/"+l.GetSubZone(), "/")
}

// CreateWatch implements cache.ConfigWatcher: the state of the world.
func (v *view) CreateWatch(r *cache.Request, sub cache.Subscription, to chan cache.Response) (func(), error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.of(r.GetTypeUrl(), r.GetNode())
	s.gone = isWhole(s.url)
	s.asks(sub)
	if !s.wildcard && len(s.names) == 0 {
		return nil, nil //nolint:nilnil // it unsubscribed: there is nothing to wait for
	}
	return v.subscribe(s, func() { to <- &world{v: v, s: s, request: r} }), nil
}

// asks takes in all that a stream asks for in the state of the world, in place
// of what it asked for before.
func (s *subscription) asks(sub cache.Subscription) {
	names := sub.SubscribedResources()
	for name := range names {
		if _, had := s.names[name]; !had {
			s.fresh[name] = ""
		}
	}
	maps.DeleteFunc(s.fresh, func(name, _ string) bool { _, has := names[name]; return !has })
	isLess := len(names) < len(s.names) || s.wildcard && !sub.IsWildcard()
	if sub.IsWildcard() && !s.wildcard || isLess && isWhole(s.url) { // what is not asked for any more goes
		s.first = true
	}
	s.names, s.wildcard = names, sub.IsWildcard()
}

// CreateDeltaWatch implements cache.ConfigWatcher: the incremental form.
func (v *view) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, to chan cache.DeltaResponse) (func(), error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.of(r.GetTypeUrl(), r.GetNode())
	if s.typed != nil && !s.first && s.since < s.typed.compactedTo(v.store) {
		return nil, errMissed
	}
	s.gone = true
	known := sub.ReturnedResources()
	if s.first && s.known == nil {
		s.known = maps.Clone(known)
	}
	for name, version := range known {
		if version == "" { // unsubscribed from by name while all are subscribed to
			s.fresh[name] = ""
		}
	}
	for _, name := range r.GetResourceNamesSubscribe() {
		if name != "*" {
			s.fresh[name] = s.known[name]
		}
	}
	if sub.IsWildcard() && !s.wildcard {
		s.first = true
	}
	s.names, s.wildcard = sub.SubscribedResources(), sub.IsWildcard()
	return v.subscribe(s, func() { to <- &differences{v: v, s: s, request: r} }), nil
}

func (t *typed) compactedTo(s *store) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return t.compacted
}

// Fetch implements cache.ConfigFetcher: one answer.
func (v *view) Fetch(_ context.Context, r *cache.Request) (cache.Response, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.of(r.GetTypeUrl(), r.GetNode())
	s.names = make(map[string]struct{}, len(r.GetResourceNames()))
	for _, name := range r.GetResourceNames() {
		s.names[name] = struct{}{}
		s.fresh[name] = ""
	}
	s.wildcard = len(s.names) == 0
	v.store.mu.RLock()
	defer v.store.mu.RUnlock()
	if s.typed != nil && (v.store.revision == 0 || r.GetVersionInfo() == s.typed.version()) {
		return nil, &types.SkipFetchError{}
	}
	return &world{v: v, s: s, request: r}, nil
}

// isWhole reports whether an answer of a type is the whole set in the state of
// the world: what is missing is gone.
func isWhole(url string) bool { return url == resource.ClusterType || url == resource.ListenerType }

// sent notes that the stream was sent everything. The caller holds both locks.
func (v *view) sent(s *subscription) {
	s.since, s.first, s.known = v.store.revision, false, nil
	clear(s.fresh)
	if s.url == resource.ClusterType || s.url == resource.EndpointType {
		v.release()
	}
}

// release has routes sent that wait for nothing any more. The caller holds both
// locks.
func (v *view) release() {
	if v.warmUntil != nil && len(v.warming) == 0 {
		v.warmUntil.Stop()
		v.warmUntil = nil
	}
	for _, url := range []string{resource.ListenerType, resource.RouteType} {
		if s := v.subs[url]; s != nil {
			v.signal(s)
		}
	}
}

// warmWithin is how long routes wait for clusters that nobody confirms, or
// endpoints that nobody asks for.
const warmWithin = 5 * time.Second

// sends notes what a stream is sent. Of new clusters it will ask for the
// endpoints. The caller holds both locks.
func (v *view) sends(s *subscription, r *stored) {
	switch {
	case s.url == resource.EndpointType:
		delete(v.warming, r.name)
	case s.url == resource.ClusterType && s.wildcard && r.created > s.since:
		v.warming[r.name] = struct{}{}
	}
}

// warmed gives up waiting.
func (v *view) warmed() {
	defer v.lock()()
	clear(v.warming)
	v.released = v.store.revision
	v.release()
}

// lock takes both locks, for as long as an answer is worked out.
func (v *view) lock() (unlock func()) {
	v.mu.Lock()
	v.store.mu.RLock()
	return func() {
		v.store.mu.RUnlock()
		v.mu.Unlock()
	}
}

// A sink takes what a stream is to be sent.
type sink struct {
	send func(*stored)
	gone func(name string)
}

// due hands over each resource that a stream is to be sent because it changed
// or is new to it, and the name of each that is gone. The caller holds both
// locks.
func (v *view) due(s *subscription, to sink) {
	v.fresh(s, to)
	if s.typed == nil {
		return
	}
	if s.first {
		s.since = 0
	}
	for r := range s.typed.since(s.since) {
		if _, done := s.fresh[r.name]; !done && s.wants(r) {
			v.changed(s, r, to)
		}
	}
	for name := range s.known { // only of the first answer
		if _, named := s.names[name]; s.wildcard && !named && s.typed.find(name, v.namespace) == nil {
			to.gone(name)
		}
	}
}

// fresh hands over what became of names that a stream asks for anew.
func (v *view) fresh(s *subscription, to sink) {
	for name, version := range s.fresh {
		if r := s.typed.find(name, v.namespace); r == nil || !s.wants(r) {
			to.gone(name)
		} else if version != r.version {
			to.send(r)
		}
	}
}

// changed hands over what became of a resource for a stream that has what was
// before.
func (v *view) changed(s *subscription, r *stored, to sink) {
	switch now := s.typed.find(r.name, v.namespace); {
	case now == nil:
		if !s.first && r.wasVisible(v.namespace) {
			to.gone(r.name)
		}
	case now == r:
		if s.known[r.name] != r.version {
			to.send(r)
		}
	case r.wire == nil && now.revision <= s.since: // what its namespace had for itself is gone
		to.send(now)
	}
}
