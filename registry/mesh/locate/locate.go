// Package locate finds out at which host address of the mesh a process is
// itself: the service that has its address and port among its endpoints. A
// provider looks it up to publish its service keys; a consumer does not.
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

// ErrNoService says that istiod reported everything and that no service has the
// endpoint. Another look may find it: services come later than their pods.
var ErrNoService = errors.New("no service of the mesh has the endpoint; " +
	"check that a Service selects this pod and that its target port is the one listened on, or give the host address")

// Options say who is looked for and where.
type Options struct {
	ADS   ads.Options      // how to connect to istiod; the stream ends with Find
	IP    netip.Addr       // of this process
	Port  uint16           // that it listens on
	Hosts []naming.Pattern // hosts that may be it; none: those of the node's namespace

	// Report is called with why nothing was found so far: ErrNoService where istiod reported
	// everything. It may be called often, from one goroutine, and may be nil.
	Report func(error)
}

// Find looks for the host address until it is found, over one stream, or ctx
// ends; the error then says what is known: ErrNoService where istiod reported
// everything, or else why it did not.
// Of several services the first by name and port is returned, so that the answer is
// the same in every process and at every start.
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
	case err := <-ended: // with ctx, or it cannot run at all
		if err != nil {
			return naming.HostAddress{}, fmt.Errorf("locate: %w", err)
		}
	}
	return naming.HostAddress{}, fmt.Errorf("own host address, with endpoint %s: %w", netip.AddrPortFrom(o.IP, o.Port), s.notFoundReason)
}

// ownNamespace returns the pattern of the hosts of the node's namespace.
func ownNamespace(o ads.Options) (naming.Pattern, error) {
	parts := strings.Split(o.Node.GetId(), "~")
	if len(parts) != 4 {
		return naming.Pattern{}, fmt.Errorf("locate: node %s: its id has not four parts", naming.Quote(o.Node.GetId()))
	}
	p, err := naming.ParsePattern("*." + parts[3]) // namespace.svc.domain
	if err != nil {
		return p, fmt.Errorf("locate: %w", err)
	}
	return p, nil
}

// hostSearch is what is known so far. Only the goroutine of the client touches it,
// until that has ended.
type hostSearch struct {
	hosts          []naming.Pattern
	host           string
	port           uint16
	endpoints      *ads.Subscription[*mesh.Assignment]
	found          chan naming.HostAddress
	report         func(error)
	notFoundReason error // why nothing was found so far

	candidates       map[string]naming.HostAddress // by EDS name
	pendingEndpoints map[string]struct{}           // EDS names that were not reported yet
	hasEndpoint      map[string]bool               // EDS names that have the endpoint
	clustersComplete bool                          // all clusters were reported
}

func newHostSearch(client *ads.Client, hosts []naming.Pattern, o Options) *hostSearch {
	s := &hostSearch{
		hosts: hosts, host: o.IP.Unmap().String(), port: o.Port, found: make(chan naming.HostAddress, 1), report: o.Report, notFoundReason: errors.New("istiod has not answered"),
		candidates: map[string]naming.HostAddress{}, pendingEndpoints: map[string]struct{}{}, hasEndpoint: map[string]bool{},
	}
	// The own address may well be one that others should not be sent to.
	all := []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	reading := mesh.NewDecoder(all, mesh.AcceptMutualTLS)
	clusters := ads.Subscribe(client, ads.Kind[*mesh.Cluster]{URL: mesh.ClusterType, Full: true, Decode: reading.DecodeCluster}, s.onClusters)
	s.endpoints = ads.Subscribe(client, ads.Kind[*mesh.Assignment]{URL: mesh.EndpointType, Decode: reading.DecodeAssignment}, s.onEndpoints)
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
	for name := range e.Unknown { // it is reported later, or never
		delete(s.pendingEndpoints, name)
	}
	for name := range e.Invalid {
		delete(s.pendingEndpoints, name)
	}
	s.conclude()
}

// conclude gives the answer once everything was reported: before that another
// service may come first.
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

// reportNotFound records why nothing was found so far.
func (s *hostSearch) reportNotFound(why error) {
	s.notFoundReason = why
	s.report(why)
}
