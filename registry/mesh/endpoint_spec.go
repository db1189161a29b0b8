package mesh

import (
	"maps"
	"net"
	"strconv"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An EndpointSpec is an endpoint that is read elsewhere than from xDS.
type EndpointSpec struct {
	Host     string // an IP address or a host name
	Port     uint32
	Health   registry.Health
	Weight   uint32
	Zone     string // region/zone/subzone, without the parts that are empty at its end
	Instance string // namespace/name
	TLSMode  string // istio where its sidecar takes mutual TLS
	Subset   string // empty: none
	Protocol string // empty: not known
	Left     string // why it is left out, empty: it is not
}

// Assignment returns what is kept of endpoints, as of those that xDS brings.
func (r *Reading) Assignment(endpoints []EndpointSpec) *Assignment {
	out := &Assignment{Endpoints: make([]registry.Endpoint, 0, len(endpoints))}
	for _, s := range endpoints {
		e, reason := r.endpointOf(s)
		if reason != "" {
			out.leave(reason, net.JoinHostPort(s.Host, strconv.FormatUint(uint64(s.Port), 10)))
			continue
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	out.tidy()
	return out
}

// endpointOf returns the endpoint of a spec, or why it is left out.
func (r *Reading) endpointOf(s EndpointSpec) (e registry.Endpoint, reason string) {
	if s.Left != "" {
		return e, s.Left
	}
	if s.Port == 0 || s.Port > 65535 {
		return e, reasonPort
	}
	e = registry.Endpoint{Port: uint16(s.Port), Health: s.Health, Weight: s.Weight, Zone: s.Zone, Instance: s.Instance, Protocol: s.Protocol}
	if e.Host, reason = hostOf(s.Host); reason != "" {
		return e, reason
	}
	if reason = r.refused(e.Host, e.Port); reason != "" {
		return e, reason
	}
	if reason = r.mutual(s.TLSMode, &e); reason != "" {
		return e, reason
	}
	if s.Subset != "" {
		a := registry.Attributes{AttributeSubset: s.Subset}
		maps.Copy(a, e.Attributes)
		e.Attributes = a
	}
	return e, ""
}

// NewCluster returns the cluster that istiod makes of a port of a host. Its
// endpoints are Inline; without them it has none for anybody.
func NewCluster(id naming.Cluster, inline *Assignment) *Cluster {
	c := &Cluster{Name: id.String(), ID: id, Address: id.HostAddress(), Discovery: DiscoveryEmpty, Inline: inline}
	if inline != nil {
		c.Discovery = DiscoveryInline
	}
	c.Attributes = registry.Attributes{AttributeCluster: c.Name, AttributeHost: c.Address.String()}
	return c
}
