package dataplane

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/naming"
)

// Options tune a Server.
type Options struct {
	VIPs  netip.Prefix // the range of the entries' virtual addresses; the zero value: none
	Rules Rules
}

// A Server serves entries to data planes. It is safe for use by many goroutines.
type Server struct {
	// Immutable. store has its own lock.
	o     Options
	store *resourceStore

	nameBytes atomic.Int64 // bytes of the names that all streams request

	// Guarded by mu.
	mu        sync.Mutex
	entries   map[string]Entry // by name, without their endpoints
	ports     map[uint32]*portEntries
	draining  map[drainKey]int // clusters and endpoints whose removal is delayed, with the number of the delay
	lastDrain int              // number of the last delay
}

// portEntries has the entries with a port.
type portEntries struct {
	entryNames map[string]struct{}

	// namespaces has "", which stands for all namespaces, and each namespace to which an
	// entry is exported by name.
	namespaces []string
}

// A drainKey identifies a resource whose removal is delayed.
type drainKey struct {
	url string
	key resourceKey
}

// NewServer returns a server that answers no request before its first Update.
func NewServer(o Options) *Server {
	return &Server{
		o: o, store: newResourceStore(),
		entries: make(map[string]Entry), ports: make(map[uint32]*portEntries), draining: make(map[drainKey]int),
	}
}

// Update adds new entries, replaces changed ones, and removes others by name. It does not
// wait for the streams.
func (s *Server) Update(put []Entry, remove []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := updateCollector{server: s, updates: newResourceUpdates(), ports: make(map[uint32]struct{})}
	for _, name := range remove {
		if old, ok := s.entries[name]; ok {
			c.removeEntry(old)
		}
	}
	for _, e := range put {
		c.putEntry(e)
	}
	for number := range c.ports {
		c.collectPort(number)
	}
	s.delayRemovals(c.updates)
	s.store.apply(c.updates)
}

// drainFor is how long clusters and endpoints outlive the routes to them, so that every data
// plane receives the new routes first.
const drainFor = 10 * time.Second

// delayRemovals takes the removals of clusters and endpoints out of the updates, and applies
// them after drainFor. The caller holds mu.
func (s *Server) delayRemovals(all resourceUpdates) {
	later := newResourceUpdates()
	for _, url := range []string{resource.ClusterType, resource.EndpointType} {
		for k, r := range all[url] {
			if r != nil {
				delete(s.draining, drainKey{url, k})
				continue
			}
			later[url][k] = nil
			delete(all[url], k)
		}
	}
	if len(later[resource.ClusterType])+len(later[resource.EndpointType]) == 0 {
		return
	}
	s.lastDrain++
	number := s.lastDrain
	for url, update := range later {
		for k := range update {
			s.draining[drainKey{url, k}] = number
		}
	}
	time.AfterFunc(drainFor, func() { s.removeDrained(later, number) })
}

// removeDrained applies delayed removals, except of resources that were added again
// meanwhile.
func (s *Server) removeDrained(all resourceUpdates, number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for url, update := range all {
		maps.DeleteFunc(update, func(k resourceKey, _ *storedResource) bool {
			return s.draining[drainKey{url, k}] != number
		})
		for k := range update {
			delete(s.draining, drainKey{url, k})
		}
	}
	s.store.apply(all)
}

// An updateCollector collects the updates of resources for changed entries. It exists during
// one Update, whose goroutine holds the server's mu.
type updateCollector struct {
	server  *Server
	updates resourceUpdates
	ports   map[uint32]struct{} // ports whose hosts changed
}

// removeEntry removes an entry and its resources.
func (c *updateCollector) removeEntry(e Entry) {
	delete(c.server.entries, e.Name)
	for _, r := range resourcesOf(e, c.server.o.Rules) {
		c.updates[r.url][resourceKey{name: r.name}] = nil
	}
	for _, p := range e.Spec.GetPorts() {
		delete(c.server.ports[p.GetNumber()].entryNames, e.Name)
		c.ports[p.GetNumber()] = struct{}{}
	}
}

// putEntry adds or replaces an entry. If only its endpoints changed, it updates only them.
func (c *updateCollector) putEntry(e Entry) {
	old, had := c.server.entries[e.Name]
	sameHead := had && e.sameHead(old)
	if had && !sameHead {
		c.removeEntry(old)
	}
	c.server.entries[e.Name] = e.withoutEndpoints()
	for _, r := range resourcesOf(e, c.server.o.Rules) {
		if sameHead && r.url != resource.EndpointType {
			continue // depends only on the head, which did not change
		}
		next := newStoredResource(r.name, pack(r.message()))
		next.exportTo, next.byNameOnly, next.localities = e.exportTo(), r.byNameOnly, r.localities
		c.updates[r.url][next.resourceKey] = next
	}
	if sameHead {
		return
	}
	for _, p := range e.Spec.GetPorts() {
		port := c.server.ports[p.GetNumber()]
		if port == nil {
			port = &portEntries{entryNames: make(map[string]struct{})}
			c.server.ports[p.GetNumber()] = port
		}
		port.entryNames[e.Name] = struct{}{}
		c.ports[p.GetNumber()] = struct{}{}
	}
}

// collectPort updates the listener and the routes of a port. Each namespace to which an entry
// is exported by name gets its own.
func (c *updateCollector) collectPort(number uint32) {
	port := c.server.ports[number]
	before := port.namespaces
	port.namespaces = []string{""}
	entries := make([]Entry, 0, len(port.entryNames))
	for _, name := range slices.Sorted(maps.Keys(port.entryNames)) {
		e := c.server.entries[name]
		entries = append(entries, e)
		for _, to := range e.exportTo() {
			if !slices.Contains(port.namespaces, to) {
				port.namespaces = append(port.namespaces, to)
			}
		}
	}
	for _, namespace := range before {
		c.updates[resource.ListenerType][resourceKey{envoyListenerName(number, c.server.o.VIPs), namespace}] = nil
		c.updates[resource.RouteType][resourceKey{envoyRoutesName(number), namespace}] = nil
	}
	for _, namespace := range port.namespaces {
		p := visiblePort(number, entries, namespace)
		if l := p.listener(c.server.o.VIPs); l != nil {
			c.putForNamespace(namespace, resource.ListenerType, l.GetName(), l)
		}
		if r := p.routes(c.server.o.Rules); r != nil {
			c.putForNamespace(namespace, resource.RouteType, r.GetName(), r)
		}
	}
	if len(port.entryNames) == 0 {
		delete(c.server.ports, number)
	}
}

// putForNamespace adds a resource that only data planes of a namespace get.
func (c *updateCollector) putForNamespace(namespace, url, name string, m proto.Message) {
	r := newStoredResource(name, pack(m))
	r.namespace = namespace
	c.updates[url][r.resourceKey] = r
}

// visiblePort returns the port with the hosts that a namespace sees. An empty name stands for
// a namespace to which no entry is exported by name.
func visiblePort(number uint32, entries []Entry, namespace string) listenerPort {
	p := listenerPort{number: number}
	seen := make(map[string]bool)
	for _, e := range entries {
		if !isVisible(e.exportTo(), namespace) {
			continue
		}
		i := slices.IndexFunc(e.Spec.GetPorts(), func(p *networking.ServicePort) bool {
			return p.GetNumber() == number
		})
		for _, host := range e.Spec.GetHosts() {
			if seen[host] {
				continue
			}
			seen[host] = true
			h := listenerHost{name: host, http: isHTTP(e.Spec.GetPorts()[i])}
			for _, a := range e.Spec.GetAddresses() {
				if !seen[a] { // of several hosts with an address, it leads to the first
					seen[a] = true
					h.addresses = append(h.addresses, a)
				}
			}
			p.hosts = append(p.hosts, h)
		}
	}
	return p
}

// An Entry is a ServiceEntry that is served to istiod.
type Entry struct {
	Name string // namespace/name
	Spec *networking.ServiceEntry
}

// Decode decodes an entry in the form in which istiod receives it.
func Decode(wire *anypb.Any) (Entry, error) {
	var (
		outer mcpv1.Resource
		spec  networking.ServiceEntry
	)
	if err := proto.Unmarshal(wire.GetValue(), &outer); err != nil {
		return Entry{}, fmt.Errorf("resource: %w", err)
	}
	e := Entry{Name: outer.GetMetadata().GetName(), Spec: &spec}
	if err := proto.Unmarshal(outer.GetBody().GetValue(), &spec); err != nil {
		return e, fmt.Errorf("%s: %w", e.Name, err)
	}
	return e, nil
}

// withoutEndpoints returns the head of the entry: all but its endpoints, which are most of it.
func (e Entry) withoutEndpoints() Entry {
	return Entry{e.Name, &networking.ServiceEntry{
		Hosts: e.Spec.GetHosts(), Addresses: e.Spec.GetAddresses(),
		Ports: e.Spec.GetPorts(), ExportTo: e.Spec.GetExportTo(),
	}}
}

func (e Entry) namespace() string {
	namespace, _, _ := strings.Cut(e.Name, "/")
	return namespace
}

// exportTo returns the namespaces in which the entry is visible, or nil for all.
func (e Entry) exportTo() []string {
	to := slices.Clone(e.Spec.GetExportTo())
	if len(to) == 0 || slices.Contains(to, "*") {
		return nil
	}
	for i, namespace := range to {
		if namespace == "." {
			to[i] = e.namespace()
		}
	}
	return to
}

// isVisible reports whether an entry with some exportTo is visible in a namespace.
func isVisible(exportTo []string, namespace string) bool {
	return exportTo == nil || slices.Contains(exportTo, namespace)
}

// sameHead reports whether two entries differ at most in their endpoints.
func (e Entry) sameHead(o Entry) bool {
	a, b := e.Spec, o.Spec
	return e.Name == o.Name && slices.Equal(a.GetHosts(), b.GetHosts()) &&
		slices.Equal(a.GetAddresses(), b.GetAddresses()) && slices.Equal(a.GetExportTo(), b.GetExportTo()) &&
		slices.EqualFunc(a.GetPorts(), b.GetPorts(), func(p, q *networking.ServicePort) bool { return proto.Equal(p, q) })
}

// listenerName returns the name of the listener that gRPC requests for xds:///host:port.
func listenerName(host string, port uint32) string { return fmt.Sprintf("%s:%d", host, port) }

// clusterName returns the name of a cluster, the same as Istio's.
func clusterName(host string, port uint32, subset string) string {
	number := uint16(port) //nolint:gosec // ports have 16 bits
	return naming.Cluster{Direction: naming.Outbound, Port: number, Subset: subset, Host: host}.String()
}

// isHTTP reports whether calls to a port are routed by host name.
func isHTTP(p *networking.ServicePort) bool {
	switch strings.ToUpper(p.GetProtocol()) {
	case "HTTP", "HTTP2", "GRPC", "GRPC-WEB":
		return true
	}
	return false
}

// isHTTP2 reports whether a port speaks HTTP/2.
func isHTTP2(p *networking.ServicePort) bool {
	protocol := strings.ToUpper(p.GetProtocol())
	return protocol == "HTTP2" || protocol == "GRPC"
}
