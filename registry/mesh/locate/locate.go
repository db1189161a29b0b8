// Package locate finds the host address of the service in the mesh that has a process among
// its endpoints. Providers need it to publish their service keys. Consumers do not.
package locate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// ErrNoService means that istiod reported everything, and no service has the endpoint. A later
// search may find it, because services appear later than their pods.
var ErrNoService = errors.New("no service of the mesh has the endpoint; " +
	"check that a Service selects this pod and has its port as target port, or configure the host address")

// Options configure a search.
type Options struct {
	ADS  ads.Options // the connection to istiod, which is closed when Find returns
	IP   netip.Addr  // of this process
	Port uint16      // on which it listens

	// Hosts limits the hosts of the service; none: those of the node's namespace.
	Hosts []naming.Pattern

	// Report is called with the reason why nothing has been found yet, which is ErrNoService
	// if istiod reported everything. It may be called often, from one goroutine. It may be nil.
	Report func(error)
}

// Find searches until it finds the host address, or ctx ends. The error then wraps the last
// reason that was reported. Of several services, Find returns the first by name and port, so
// that the result is the same in every process and after every restart.
func Find(ctx context.Context, o Options) (naming.HostAddress, error) {
	hosts := o.Hosts
	if len(hosts) == 0 {
		own, err := ownNamespace(o.ADS)
		if err != nil {
			return naming.HostAddress{}, err
		}
		hosts = []naming.Pattern{own}
	}
	client, err := ads.New(o.ADS)
	if err != nil {
		return naming.HostAddress{}, fmt.Errorf("locate: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	ended := make(chan error, 1)
	if o.Report == nil {
		o.Report = func(error) {}
	}
	s := newHostSearch(client, hosts, o)
	running.Go(func() { ended <- client.Run(ctx) })
	select {
	case a := <-s.found:
		return a, nil
	case err := <-ended: // nil if ctx has ended
		if err != nil {
			return naming.HostAddress{}, fmt.Errorf("locate: %w", err)
		}
	}
	return naming.HostAddress{}, fmt.Errorf("own host address, with endpoint %s: %w",
		netip.AddrPortFrom(o.IP, o.Port), s.notFoundReason)
}

// ownNamespace returns the pattern of the hosts of the node's namespace.
func ownNamespace(o ads.Options) (naming.Pattern, error) {
	parts := strings.Split(o.Node.GetId(), "~")
	if len(parts) != 4 {
		return naming.Pattern{}, fmt.Errorf("locate: node %s: id must have four parts", naming.Quote(o.Node.GetId()))
	}
	p, err := naming.ParsePattern("*." + parts[3]) // namespace.svc.domain
	if err != nil {
		return p, fmt.Errorf("locate: %w", err)
	}
	return p, nil
}

// hostSearch is the state of a search.
type hostSearch struct {
	// Immutable or safe for concurrent use.
	hosts     []naming.Pattern
	host      string
	port      uint16
	endpoints *ads.Subscription[*mesh.Assignment]
	report    func(error)
	found     chan naming.HostAddress

	// Owned by the goroutine of the client until that has ended. Keys are EDS names.
	candidates       map[string]naming.HostAddress
	pendingEndpoints map[string]struct{} // not reported yet
	hasEndpoint      map[string]bool     // whether the process is among the endpoints
	clustersComplete bool                // all clusters were reported
	notFoundReason   error               // why nothing has been found yet
}

func newHostSearch(client *ads.Client, hosts []naming.Pattern, o Options) *hostSearch {
	s := &hostSearch{
		hosts: hosts, host: o.IP.Unmap().String(), port: o.Port, report: o.Report,
		found:      make(chan naming.HostAddress, 1),
		candidates: map[string]naming.HostAddress{}, pendingEndpoints: map[string]struct{}{},
		hasEndpoint: map[string]bool{}, notFoundReason: errors.New("istiod has not answered"),
	}
	// All addresses are accepted: consumers need not be able to call ours.
	all := []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	d := mesh.NewDecoder(all, mesh.AcceptMutualTLS)
	clusters := ads.Subscribe(client, ads.Kind[*mesh.Cluster]{
		URL: mesh.ClusterType, Full: true, Decode: d.DecodeCluster,
	}, s.onClusters)
	s.endpoints = ads.Subscribe(client, ads.Kind[*mesh.Assignment]{
		URL: mesh.EndpointType, Decode: d.DecodeAssignment,
	}, s.onEndpoints)
	clusters.Watch(ads.Wildcard)
	return s
}

func (s *hostSearch) onClusters(e ads.Event[*mesh.Cluster]) {
	if e.Disconnected != nil {
		s.reportNotFound(e.Disconnected)
		return
	}
	var watch, unwatch []string
	for _, c := range e.Changed {
		if name := c.Value.EDSName; s.isCandidate(c.Value) {
			s.candidates[name], s.pendingEndpoints[name] = c.Value.Address, struct{}{}
			watch = append(watch, name)
		}
	}
	for _, name := range e.Removed {
		id, err := naming.ParseCluster(name)
		for eds, a := range s.candidates {
			if err == nil && id.Subset == "" && a == id.HostAddress() {
				s.removeCandidate(eds)
				unwatch = append(unwatch, eds)
			}
		}
	}
	s.clustersComplete = s.clustersComplete || e.Complete
	s.endpoints.Watch(watch...)
	s.endpoints.Unwatch(unwatch...)
	s.conclude()
}

// isCandidate reports whether a cluster may be that of the service.
func (s *hostSearch) isCandidate(c *mesh.Cluster) bool {
	return c.Err == nil && c.ID.Subset == "" && c.Discovery == mesh.DiscoveryEDS &&
		slices.ContainsFunc(s.hosts, func(p naming.Pattern) bool { return p.MatchHost(c.Address.Host) })
}

func (s *hostSearch) removeCandidate(eds string) {
	delete(s.candidates, eds)
	delete(s.pendingEndpoints, eds)
	delete(s.hasEndpoint, eds)
}

func (s *hostSearch) onEndpoints(e ads.Event[*mesh.Assignment]) {
	for _, c := range e.Changed {
		delete(s.pendingEndpoints, c.Name)
		s.hasEndpoint[c.Name] = false
		for _, at := range c.Value.Endpoints {
			s.hasEndpoint[c.Name] = s.hasEndpoint[c.Name] || at.Host == s.host && at.Port == s.port
		}
	}
	for _, name := range e.Confirmed {
		delete(s.pendingEndpoints, name)
	}
	for name := range e.Unknown { // may be reported later, or never
		delete(s.pendingEndpoints, name)
	}
	for name := range e.Invalid {
		delete(s.pendingEndpoints, name)
	}
	s.conclude()
}

// conclude ends the search once everything was reported. Before that, a service that sorts
// first may still be missing.
func (s *hostSearch) conclude() {
	if !s.clustersComplete || len(s.pendingEndpoints) > 0 {
		return
	}
	var own []naming.HostAddress
	for eds, here := range s.hasEndpoint {
		if a, ok := s.candidates[eds]; ok && here {
			own = append(own, a)
		}
	}
	if len(own) == 0 {
		s.reportNotFound(ErrNoService)
		return
	}
	select {
	case s.found <- slices.MinFunc(own, naming.HostAddress.Compare):
	default:
	}
}

// reportNotFound records and reports why nothing has been found yet.
func (s *hostSearch) reportNotFound(why error) {
	s.notFoundReason = why
	s.report(why)
}
