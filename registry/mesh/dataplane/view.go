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

// A streamView is the store as one stream sees it, and implements go-control-plane's cache for
// that stream. A response is made when it is sent, so that changes are gathered while the
// client does not read.
//
// The order in which a change reaches the client (make before break):
//
//  1. New clusters are sent. They are warming until their endpoints are sent.
//  2. The client requests the endpoints of new clusters, which are sent.
//  3. Listeners and routes are sent when no cluster is warming, or after maxWarming.
//  4. Removed clusters and endpoints are sent after drainFor, by Server.delayRemovals.
type streamView struct {
	store *resourceStore

	// Guarded by mu, which is locked before the store's.
	mu            sync.Mutex
	namespace     string // of the client
	locality      string // of the client: region/zone/sub-zone; empty: none
	subscriptions map[string]*viewSubscription

	// Guarded by mu: the wait of listeners and routes.
	warming          map[string]struct{} // clusters that were sent without their endpoints
	warmingTimer     *time.Timer         // ends the wait; nil while nothing waits
	releasedRevision uint64              // revision up to which the wait was ended by warmingTimer
}

var _ cache.Cache = (*streamView)(nil)

// A viewSubscription has what a stream requests and has of one type. Guarded by the mu of its
// view.
type viewSubscription struct {
	url            string
	state          *typeState // nil if the type is not served
	reportsRemoved bool       // responses report removed resources

	// What the stream requests.
	wildcard bool
	names    map[string]struct{}

	// What the stream has. newNames has the names that were just requested, with the version
	// that the client has; they are sent whatever their revision. initialVersions has the
	// versions of a client that begins with a wildcard.
	sentRevision    uint64 // revision up to which everything was sent
	sentNothing     bool
	newNames        map[string]string
	initialVersions map[string]string

	// whenDue is called once a response is due. It is nil if the stream does not wait for
	// one. callCount counts how often it was set.
	whenDue   func()
	callCount int
}

// openView returns a view that changes of the store wake until it is closed.
func (s *resourceStore) openView() *streamView {
	v := &streamView{store: s, subscriptions: make(map[string]*viewSubscription), warming: make(map[string]struct{})}
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

// wake calls whenDue of each type for which a response is due.
func (v *streamView) wake() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.store.mu.RLock()
	defer v.store.mu.RUnlock()
	for _, url := range sendingOrder() {
		if s := v.subscriptions[url]; s != nil {
			v.signalIfDue(s)
		}
	}
}

// signalIfDue calls whenDue of a subscription if a response is due. The caller holds both
// locks.
func (v *streamView) signalIfDue(s *viewSubscription) {
	switch {
	case s.whenDue == nil:
	case v.isDue(s):
		s.whenDue()
		s.whenDue = nil
	case !s.sentNothing && !v.mustWait(s):
		s.sentRevision = v.store.revision // none of the changes concern this stream
	}
}

// isDue reports whether a response would have any change for the stream. The caller holds
// both locks.
func (v *streamView) isDue(s *viewSubscription) bool {
	switch {
	case s.state == nil:
		return s.sentNothing || len(s.newNames) > 0
	case v.store.revision == 0 || v.mustWait(s):
		return false
	case s.sentNothing || len(s.newNames) > 0:
		return true
	}
	for r := range s.state.changesSince(s.sentRevision) {
		if s.wants(r) && (v.isCurrent(s, r) || s.reportsRemoved && r.wasVisible(v.namespace)) {
			return true
		}
	}
	return false
}

// mustWait reports whether a subscription to listeners or routes has to wait for new clusters
// or their endpoints. If it has, it starts the timer that ends the wait.
func (v *streamView) mustWait(s *viewSubscription) bool {
	clusters := v.subscriptions[resource.ClusterType]
	if s.url != resource.ListenerType && s.url != resource.RouteType || clusters == nil || !clusters.wildcard {
		return false
	}
	created := clusters.state.newestCreated
	if len(v.warming) == 0 && (created <= clusters.sentRevision || created <= v.releasedRevision) {
		return false
	}
	if v.warmingTimer == nil {
		v.warmingTimer = time.AfterFunc(maxWarming, v.stopWarming)
	}
	return true
}

// isCurrent reports whether a resource is the one of its name that the stream gets.
func (v *streamView) isCurrent(s *viewSubscription, r *storedResource) bool {
	return s.state.findVisible(r.name, v.namespace) == r
}

// wants reports whether the stream requests a resource.
func (s *viewSubscription) wants(r *storedResource) bool {
	if s.wildcard && !r.byNameOnly {
		return true
	}
	_, named := s.names[r.name]
	return named
}

// callWhenDue calls a function once a response is due, which may be at once. The returned
// function cancels that. The caller holds mu.
func (v *streamView) callWhenDue(s *viewSubscription, signal func()) func() {
	v.store.mu.RLock()
	defer v.store.mu.RUnlock()
	s.callCount++
	opened := s.callCount
	s.whenDue = signal
	v.signalIfDue(s)
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if s.callCount == opened {
			s.whenDue = nil
		}
	}
}

// subscriptionTo returns the subscription to a type, and records the namespace and locality
// of the client. The caller holds mu.
func (v *streamView) subscriptionTo(url string, node *corev3.Node) *viewSubscription {
	v.namespace, v.locality = namespaceOf(node), localityName(node.GetLocality())
	s := v.subscriptions[url]
	if s == nil {
		s = &viewSubscription{
			url: url, state: v.store.types[url], sentNothing: true, newNames: make(map[string]string),
		}
		v.subscriptions[url] = s
	}
	return s
}

// namespaceOf returns the namespace of a node: NAMESPACE in its metadata, or the one in its
// id. Istio's sidecars have the id `sidecar~ip~name.namespace~domain`.
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

// localityName returns a locality as region/zone/sub-zone, without empty parts at the end.
func localityName(l *corev3.Locality) string {
	return strings.TrimRight(l.GetRegion()+"/"+l.GetZone()+"/"+l.GetSubZone(), "/")
}

// CreateWatch implements cache.ConfigWatcher for the state-of-the-world variant.
func (v *streamView) CreateWatch(r *cache.Request, sub cache.Subscription, to chan cache.Response) (func(), error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.subscriptionTo(r.GetTypeUrl(), r.GetNode())
	s.reportsRemoved = isWhole(s.url)
	s.replaceNames(sub)
	if !s.wildcard && len(s.names) == 0 {
		return nil, nil //nolint:nilnil // the client unsubscribed
	}
	return v.callWhenDue(s, func() { to <- newSotwResponse(v, s, r) }), nil
}

// replaceNames replaces what the stream requests, in the state-of-the-world variant.
func (s *viewSubscription) replaceNames(sub cache.Subscription) {
	names := sub.SubscribedResources()
	for name := range names {
		if _, had := s.names[name]; !had {
			s.newNames[name] = ""
		}
	}
	maps.DeleteFunc(s.newNames, func(name, _ string) bool { _, has := names[name]; return !has })
	isReduced := len(names) < len(s.names) || s.wildcard && !sub.IsWildcard()
	if sub.IsWildcard() && !s.wildcard || isReduced && isWhole(s.url) {
		s.sentNothing = true // so that the next response has exactly what is requested
	}
	s.names, s.wildcard = names, sub.IsWildcard()
}

// CreateDeltaWatch implements cache.ConfigWatcher for the incremental variant.
func (v *streamView) CreateDeltaWatch(
	r *cache.DeltaRequest, sub cache.Subscription, to chan cache.DeltaResponse,
) (func(), error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.subscriptionTo(r.GetTypeUrl(), r.GetNode())
	if s.state != nil && !s.sentNothing && s.sentRevision < s.state.compactedTo(v.store) {
		return nil, errMissed
	}
	s.reportsRemoved = true
	known := sub.ReturnedResources()
	if s.sentNothing && s.initialVersions == nil {
		s.initialVersions = maps.Clone(known)
	}
	for name, version := range known {
		if version == "" { // the client unsubscribed the name, but still has it by a wildcard
			s.newNames[name] = ""
		}
	}
	for _, name := range r.GetResourceNamesSubscribe() {
		if name != "*" {
			s.newNames[name] = s.initialVersions[name]
		}
	}
	if sub.IsWildcard() && !s.wildcard {
		s.sentNothing = true
	}
	s.names, s.wildcard = sub.SubscribedResources(), sub.IsWildcard()
	return v.callWhenDue(s, func() { to <- newDeltaResponse(v, s, r) }), nil
}

// compactedTo returns compactedRevision while the caller does not hold the store's lock.
func (t *typeState) compactedTo(s *resourceStore) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return t.compactedRevision
}

// Fetch implements cache.ConfigFetcher, for REST.
func (v *streamView) Fetch(_ context.Context, r *cache.Request) (cache.Response, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.subscriptionTo(r.GetTypeUrl(), r.GetNode())
	s.names = make(map[string]struct{}, len(r.GetResourceNames()))
	for _, name := range r.GetResourceNames() {
		s.names[name] = struct{}{}
		s.newNames[name] = ""
	}
	s.wildcard = len(s.names) == 0
	v.store.mu.RLock()
	defer v.store.mu.RUnlock()
	if s.state != nil && (v.store.revision == 0 || r.GetVersionInfo() == s.state.version()) {
		return nil, &types.SkipFetchError{}
	}
	return newSotwResponse(v, s, r), nil
}

// isWhole reports whether a state-of-the-world response of a type has the whole set, so that
// a client removes what is missing.
func isWhole(url string) bool { return url == resource.ClusterType || url == resource.ListenerType }

// markSent records that the stream was sent everything up to the current revision. New
// clusters are warming from now on. The caller holds both locks.
func (v *streamView) markSent(s *viewSubscription, sent []*storedResource) {
	for _, r := range sent {
		switch {
		case s.url == resource.EndpointType:
			delete(v.warming, r.name)
		case s.url == resource.ClusterType && s.wildcard && r.created > s.sentRevision:
			v.warming[r.name] = struct{}{}
		}
	}
	s.sentRevision, s.sentNothing, s.initialVersions = v.store.revision, false, nil
	clear(s.newNames)
	if s.url == resource.ClusterType || s.url == resource.EndpointType {
		v.releaseRoutes()
	}
}

// releaseRoutes sends listeners and routes that no longer have to wait. The caller holds both
// locks.
func (v *streamView) releaseRoutes() {
	if v.warmingTimer != nil && len(v.warming) == 0 {
		v.warmingTimer.Stop()
		v.warmingTimer = nil
	}
	for _, url := range []string{resource.ListenerType, resource.RouteType} {
		if s := v.subscriptions[url]; s != nil {
			v.signalIfDue(s)
		}
	}
}

// maxWarming is how long listeners and routes wait for clusters or endpoints that the client
// does not request.
const maxWarming = 5 * time.Second

// stopWarming ends the wait of listeners and routes.
func (v *streamView) stopWarming() {
	defer v.lock()()
	clear(v.warming)
	v.releasedRevision = v.store.revision
	v.releaseRoutes()
}

// lock locks the view and the store while a response is made.
func (v *streamView) lock() (unlock func()) {
	v.mu.Lock()
	v.store.mu.RLock()
	return func() {
		v.store.mu.RUnlock()
		v.mu.Unlock()
	}
}

// A viewDifference has the changes that a stream has to be sent.
type viewDifference struct {
	send    []*storedResource
	removed []string // names
}

// difference returns the resources that changed or are new to the stream, and the names of
// those that were removed. The caller holds both locks.
func (v *streamView) difference(s *viewSubscription) viewDifference {
	d := v.requestedDifference(s)
	if s.state == nil {
		return d
	}
	if s.sentNothing {
		s.sentRevision = 0
	}
	for r := range s.state.changesSince(s.sentRevision) {
		if _, done := s.newNames[r.name]; !done && s.wants(r) {
			v.addChanged(s, r, &d)
		}
	}
	for name := range s.initialVersions { // only for the first response
		if _, named := s.names[name]; s.wildcard && !named && s.state.findVisible(name, v.namespace) == nil {
			d.removed = append(d.removed, name)
		}
	}
	return d
}

// requestedDifference returns the changes of the names that were just requested.
func (v *streamView) requestedDifference(s *viewSubscription) (d viewDifference) {
	for name, version := range s.newNames {
		if r := s.state.findVisible(name, v.namespace); r == nil || !s.wants(r) {
			d.removed = append(d.removed, name)
		} else if version != r.version {
			d.send = append(d.send, r)
		}
	}
	return d
}

// addChanged adds a resource that changed after s.sentRevision, if the stream sees the change.
func (v *streamView) addChanged(s *viewSubscription, r *storedResource, d *viewDifference) {
	switch now := s.state.findVisible(r.name, v.namespace); {
	case now == nil:
		if !s.sentNothing && r.wasVisible(v.namespace) {
			d.removed = append(d.removed, r.name)
		}
	case now == r:
		if s.initialVersions[r.name] != r.version {
			d.send = append(d.send, r)
		}
	case r.wire == nil && now.revision <= s.sentRevision:
		// r was the resource of the client's namespace. After its removal the client gets the
		// one for all namespaces.
		d.send = append(d.send, now)
	}
}
