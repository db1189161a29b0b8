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

// A streamView is the store as one stream sees it: a cache of go-control-plane for that
// stream alone. Answers are made when they are sent, so changes are gathered while
// a client does not read.
type streamView struct {
	store *resourceStore

	mu           sync.Mutex
	namespace    string
	locality     string // of the client: region/zone/sub-zone; empty: none
	subs         map[string]*viewSubscription
	warming      map[string]struct{} // clusters that were sent without their endpoints
	warmingTimer *time.Timer         // when routes are sent anyway; nil while none wait
	released     uint64              // revision whose routes do not wait any more
}

var _ cache.Cache = (*streamView)(nil)

// A viewSubscription is what a stream asks for of one type.
type viewSubscription struct {
	url      string
	gone     bool       // answers have what is gone
	state    *typeState // nil: nothing of the type is served
	wildcard bool
	names    map[string]struct{}
	since    uint64            // revision up to which it was sent everything
	first    bool              // nothing was sent yet
	fresh    map[string]string // names to be sent whatever the revision, with the version that the client has
	known    map[string]string // of a first wildcard: versions that the client has
	signal   func()            // has the stream ask for what is due; nil: it does not wait
	opened   int               // number of times that signal was set
}

// openView returns a view that is woken by changes until it is closed.
func (s *resourceStore) openView() *streamView {
	v := &streamView{store: s, subs: make(map[string]*viewSubscription), warming: make(map[string]struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views[v] = struct{}{}
	return v
}

func (v *streamView) close() {
	v.store.mu.Lock()
	delete(v.store.views, v)
	v.store.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.warmingTimer != nil {
		v.warmingTimer.Stop()
	}
}

// wake signals which types have anything to be sent.
func (v *streamView) wake() {
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

// signal signals a subscription if anything is due. The caller holds both locks.
func (v *streamView) signal(s *viewSubscription) {
	switch {
	case s.signal == nil:
	case v.isDue(s):
		s.signal()
		s.signal = nil
	case !s.first && !v.waits(s):
		s.since = v.store.revision // up to here nothing is for this stream
	}
}

func (v *streamView) isDue(s *viewSubscription) bool {
	switch {
	case s.state == nil:
		return s.first || len(s.fresh) > 0
	case v.store.revision == 0 || v.waits(s):
		return false
	case s.first || len(s.fresh) > 0:
		return true
	}
	for r := range s.state.since(s.since) {
		if s.wants(r) && (v.sees(s, r) || s.gone && r.wasVisible(v.namespace)) {
			return true
		}
	}
	return false
}

// waits reports whether a subscription has to wait. Make before break: routes wait
// for new clusters, and for their endpoints.
func (v *streamView) waits(s *viewSubscription) bool {
	all := v.subs[resource.ClusterType]
	if s.url != resource.ListenerType && s.url != resource.RouteType || all == nil || !all.wildcard {
		return false
	}
	if came := all.state.came; len(v.warming) == 0 && (came <= all.since || came <= v.released) {
		return false
	}
	if v.warmingTimer == nil {
		v.warmingTimer = time.AfterFunc(maxWarming, v.stopWarming)
	}
	return true
}

// sees reports whether a resource is the current one for the stream.
func (v *streamView) sees(s *viewSubscription, r *storedResource) bool {
	return s.state.find(r.name, v.namespace) == r
}

// wants reports whether a resource is asked for.
func (s *viewSubscription) wants(r *storedResource) bool {
	if s.wildcard && !r.byNameOnly {
		return true
	}
	_, named := s.names[r.name]
	return named
}

// subscribe has a function called once anything is due, and returns a function to
// cancel that. The caller holds mu.
func (v *streamView) subscribe(s *viewSubscription, signal func()) func() {
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

// subscription returns the subscription to a type, and records where the client is.
// The caller holds mu.
func (v *streamView) subscription(url string, node *corev3.Node) *viewSubscription {
	v.namespace, v.locality = namespaceOf(node), localityName(node.GetLocality())
	s := v.subs[url]
	if s == nil {
		s = &viewSubscription{url: url, state: v.store.types[url], first: true, fresh: make(map[string]string)}
		v.subs[url] = s
	}
	return s
}

// namespaceOf returns the namespace of a node: of its metadata, or of its id, which
// is `sidecar~ip~name.namespace~domain` for istio's sidecars.
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
func (v *streamView) CreateWatch(r *cache.Request, sub cache.Subscription, to chan cache.Response) (func(), error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.subscription(r.GetTypeUrl(), r.GetNode())
	s.gone = isWhole(s.url)
	s.update(sub)
	if !s.wildcard && len(s.names) == 0 {
		return nil, nil //nolint:nilnil // it unsubscribed
	}
	return v.subscribe(s, func() { to <- newSotwResponse(v, s, r) }), nil
}

// update replaces what a stream asks for in the state of the world.
func (s *viewSubscription) update(sub cache.Subscription) {
	names := sub.SubscribedResources()
	for name := range names {
		if _, had := s.names[name]; !had {
			s.fresh[name] = ""
		}
	}
	maps.DeleteFunc(s.fresh, func(name, _ string) bool { _, has := names[name]; return !has })
	isLess := len(names) < len(s.names) || s.wildcard && !sub.IsWildcard()
	if sub.IsWildcard() && !s.wildcard || isLess && isWhole(s.url) { // so that the answer leaves out what is not asked for any more
		s.first = true
	}
	s.names, s.wildcard = names, sub.IsWildcard()
}

// CreateDeltaWatch implements cache.ConfigWatcher: the incremental form.
func (v *streamView) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, to chan cache.DeltaResponse) (func(), error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.subscription(r.GetTypeUrl(), r.GetNode())
	if s.state != nil && !s.first && s.since < s.state.compactedTo(v.store) {
		return nil, errMissed
	}
	s.gone = true
	known := sub.ReturnedResources()
	if s.first && s.known == nil {
		s.known = maps.Clone(known)
	}
	for name, version := range known {
		if version == "" { // unsubscribed by name, while subscribed by a wildcard
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
	return v.subscribe(s, func() { to <- newDeltaResponse(v, s, r) }), nil
}

func (t *typeState) compactedTo(s *resourceStore) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return t.compacted
}

// Fetch implements cache.ConfigFetcher.
func (v *streamView) Fetch(_ context.Context, r *cache.Request) (cache.Response, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.subscription(r.GetTypeUrl(), r.GetNode())
	s.names = make(map[string]struct{}, len(r.GetResourceNames()))
	for _, name := range r.GetResourceNames() {
		s.names[name] = struct{}{}
		s.fresh[name] = ""
	}
	s.wildcard = len(s.names) == 0
	v.store.mu.RLock()
	defer v.store.mu.RUnlock()
	if s.state != nil && (v.store.revision == 0 || r.GetVersionInfo() == s.state.version()) {
		return nil, &types.SkipFetchError{}
	}
	return newSotwResponse(v, s, r), nil
}

// isWhole reports whether, in the state of the world, an answer of a type is the
// whole set, so that what is missing is gone.
func isWhole(url string) bool { return url == resource.ClusterType || url == resource.ListenerType }

// markSent records that the stream was sent everything. For new clusters it will ask for
// the endpoints. The caller holds both locks.
func (v *streamView) markSent(s *viewSubscription, sent []*storedResource) {
	for _, r := range sent {
		switch {
		case s.url == resource.EndpointType:
			delete(v.warming, r.name)
		case s.url == resource.ClusterType && s.wildcard && r.created > s.since:
			v.warming[r.name] = struct{}{}
		}
	}
	s.since, s.first, s.known = v.store.revision, false, nil
	clear(s.fresh)
	if s.url == resource.ClusterType || s.url == resource.EndpointType {
		v.releaseRoutes()
	}
}

// releaseRoutes signals routes that do not wait any more. The caller holds both locks.
func (v *streamView) releaseRoutes() {
	if v.warmingTimer != nil && len(v.warming) == 0 {
		v.warmingTimer.Stop()
		v.warmingTimer = nil
	}
	for _, url := range []string{resource.ListenerType, resource.RouteType} {
		if s := v.subs[url]; s != nil {
			v.signal(s)
		}
	}
}

// maxWarming is how long routes wait for clusters that are not confirmed, or
// endpoints that are not asked for.
const maxWarming = 5 * time.Second

// stopWarming ends the wait of routes.
func (v *streamView) stopWarming() {
	defer v.lock()()
	clear(v.warming)
	v.released = v.store.revision
	v.releaseRoutes()
}

// lock locks view and store while an answer is made.
func (v *streamView) lock() (unlock func()) {
	v.mu.Lock()
	v.store.mu.RLock()
	return func() {
		v.store.mu.RUnlock()
		v.mu.Unlock()
	}
}

// A viewDifference is what changed for a stream, and is to be sent.
type viewDifference struct {
	send []*storedResource
	gone []string // names
}

// difference returns each resource that changed or is new to the stream, and the name of
// each that is gone. The caller holds both locks.
func (v *streamView) difference(s *viewSubscription) viewDifference {
	d := v.named(s)
	if s.state == nil {
		return d
	}
	if s.first {
		s.since = 0
	}
	for r := range s.state.since(s.since) {
		if _, done := s.fresh[r.name]; !done && s.wants(r) {
			v.addChanged(s, r, &d)
		}
	}
	for name := range s.known { // only of the first answer
		if _, named := s.names[name]; s.wildcard && !named && s.state.find(name, v.namespace) == nil {
			d.gone = append(d.gone, name)
		}
	}
	return d
}

// named returns the state of names that a stream asks for anew.
func (v *streamView) named(s *viewSubscription) (d viewDifference) {
	for name, version := range s.fresh {
		if r := s.state.find(name, v.namespace); r == nil || !s.wants(r) {
			d.gone = append(d.gone, name)
		} else if version != r.version {
			d.send = append(d.send, r)
		}
	}
	return d
}

// addChanged adds a changed resource, for a stream that has the state before.
func (v *streamView) addChanged(s *viewSubscription, r *storedResource, d *viewDifference) {
	switch now := s.state.find(r.name, v.namespace); {
	case now == nil:
		if !s.first && r.wasVisible(v.namespace) {
			d.gone = append(d.gone, r.name)
		}
	case now == r:
		if s.known[r.name] != r.version {
			d.send = append(d.send, r)
		}
	case r.wire == nil && now.revision <= s.since: // the resource of its namespace is gone
		d.send = append(d.send, now)
	}
}
