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

	mu               sync.Mutex
	namespace        string
	locality         string // of the client: region/zone/sub-zone; empty: none
	subscriptions    map[string]*viewSubscription
	warming          map[string]struct{} // clusters that were sent without their endpoints
	warmingTimer     *time.Timer         // when routes are sent anyway; nil while none wait
	releasedRevision uint64              // revision whose routes do not wait any more
}

var _ cache.Cache = (*streamView)(nil)

// A viewSubscription is what a stream asks for of one type.
type viewSubscription struct {
	url             string
	reportsRemoved  bool       // answers have what is gone
	state           *typeState // nil: nothing of the type is served
	wildcard        bool
	names           map[string]struct{}
	sentRevision    uint64            // revision up to which it was sent everything
	sentNothing     bool              // nothing was sent yet
	newNames        map[string]string // names to be sent whatever the revision, with the version that the client has
	initialVersions map[string]string // of a first wildcard: versions that the client has
	whenDue         func()            // has the stream ask for what is due; nil: it does not wait
	callCount       int               // number of times that signal was set
}

// openView returns a view that is woken by changes until it is closed.
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

// wake signals which types have anything to be sent.
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

// signalIfDue signals a subscription if anything is due. The caller holds both locks.
func (v *streamView) signalIfDue(s *viewSubscription) {
	switch {
	case s.whenDue == nil:
	case v.isDue(s):
		s.whenDue()
		s.whenDue = nil
	case !s.sentNothing && !v.mustWait(s):
		s.sentRevision = v.store.revision // up to here nothing is for this stream
	}
}

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

// mustWait reports whether a subscription has to wait. Make before break: routes wait
// for new clusters, and for their endpoints.
func (v *streamView) mustWait(s *viewSubscription) bool {
	all := v.subscriptions[resource.ClusterType]
	if s.url != resource.ListenerType && s.url != resource.RouteType || all == nil || !all.wildcard {
		return false
	}
	if came := all.state.newestCreated; len(v.warming) == 0 && (came <= all.sentRevision || came <= v.releasedRevision) {
		return false
	}
	if v.warmingTimer == nil {
		v.warmingTimer = time.AfterFunc(maxWarming, v.stopWarming)
	}
	return true
}

// isCurrent reports whether a resource is the current one for the stream.
func (v *streamView) isCurrent(s *viewSubscription, r *storedResource) bool {
	return s.state.findVisible(r.name, v.namespace) == r
}

// wants reports whether a resource is asked for.
func (s *viewSubscription) wants(r *storedResource) bool {
	if s.wildcard && !r.byNameOnly {
		return true
	}
	_, named := s.names[r.name]
	return named
}

// callWhenDue has a function called once anything is due, and returns a function to
// cancel that. The caller holds mu.
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

// subscriptionTo returns the subscription to a type, and records where the client is.
// The caller holds mu.
func (v *streamView) subscriptionTo(url string, node *corev3.Node) *viewSubscription {
	v.namespace, v.locality = namespaceOf(node), localityName(node.GetLocality())
	s := v.subscriptions[url]
	if s == nil {
		s = &viewSubscription{url: url, state: v.store.types[url], sentNothing: true, newNames: make(map[string]string)}
		v.subscriptions[url] = s
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
	s := v.subscriptionTo(r.GetTypeUrl(), r.GetNode())
	s.reportsRemoved = isWhole(s.url)
	s.replaceNames(sub)
	if !s.wildcard && len(s.names) == 0 {
		return nil, nil //nolint:nilnil // it unsubscribed
	}
	return v.callWhenDue(s, func() { to <- newSotwResponse(v, s, r) }), nil
}

// replaceNames replaces what a stream asks for in the state of the world.
func (s *viewSubscription) replaceNames(sub cache.Subscription) {
	names := sub.SubscribedResources()
	for name := range names {
		if _, had := s.names[name]; !had {
			s.newNames[name] = ""
		}
	}
	maps.DeleteFunc(s.newNames, func(name, _ string) bool { _, has := names[name]; return !has })
	isLess := len(names) < len(s.names) || s.wildcard && !sub.IsWildcard()
	if sub.IsWildcard() && !s.wildcard || isLess && isWhole(s.url) { // so that the answer leaves out what is not asked for any more
		s.sentNothing = true
	}
	s.names, s.wildcard = names, sub.IsWildcard()
}

// CreateDeltaWatch implements cache.ConfigWatcher: the incremental form.
func (v *streamView) CreateDeltaWatch(r *cache.DeltaRequest, sub cache.Subscription, to chan cache.DeltaResponse) (func(), error) {
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
		if version == "" { // unsubscribed by name, while subscribed by a wildcard
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

func (t *typeState) compactedTo(s *resourceStore) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return t.compactedRevision
}

// Fetch implements cache.ConfigFetcher.
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

// releaseRoutes signals routes that do not wait any more. The caller holds both locks.
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

// maxWarming is how long routes wait for clusters that are not confirmed, or
// endpoints that are not asked for.
const maxWarming = 5 * time.Second

// stopWarming ends the wait of routes.
func (v *streamView) stopWarming() {
	defer v.lock()()
	clear(v.warming)
	v.releasedRevision = v.store.revision
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
	send    []*storedResource
	removed []string // names
}

// difference returns each resource that changed or is new to the stream, and the name of
// each that is gone. The caller holds both locks.
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
	for name := range s.initialVersions { // only of the first answer
		if _, named := s.names[name]; s.wildcard && !named && s.state.findVisible(name, v.namespace) == nil {
			d.removed = append(d.removed, name)
		}
	}
	return d
}

// requestedDifference returns the state of names that a stream asks for anew.
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

// addChanged adds a changed resource, for a stream that has the state before.
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
	case r.wire == nil && now.revision <= s.sentRevision: // the resource of its namespace is gone
		d.send = append(d.send, now)
	}
}
