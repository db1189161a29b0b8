package mesh

import (
	"maps"
	"net"
	"strconv"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Told endpoint is one that is read elsewhere than from xDS.
type Told struct {
	Host     string // an IP address or a host name
	Port     uint32
	Health   registry.Health
	Weight   uint32
	Zone     string // region/zone/subzone, without the parts that are not told at its end
	Instance string // namespace/name
	TLSMode  string // istio where its sidecar takes mutual TLS
	Subset   string // empty: none
	Protocol string // empty: not told
	Left     string // why it is left out, empty: it is not
}

// Assignment returns what is kept of endpoints, as of those that xDS tells.
func (r *Reading) Assignment(endpoints []Told) *Assignment {
	out := &Assignment{Endpoints: make([]registry.Endpoint, 0, len(endpoints))}
	for _, t := range endpoints {
		e, reason := r.told(t)
		if reason != "" {
			out.leave(reason, net.JoinHostPort(t.Host, strconv.FormatUint(uint64(t.Port), 10)))
			continue
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	out.tidy()
	return out
}

func (r *Reading) told(t Told) (e registry.Endpoint, reason string) {
	if t.Left != "" {
		return e, t.Left
	}
	if t.Port == 0 || t.Port > 65535 {
		return e, reasonPort
	}
	e = registry.Endpoint{Port: uint16(t.Port), Health: t.Health, Weight: t.Weight, Zone: t.Zone, Instance: t.Instance, Protocol: t.Protocol}
	if e.Host, reason = hostOf(t.Host); reason != "" {
		return e, reason
	}
	if reason = r.refused(e.Host, e.Port); reason != "" {
		return e, reason
	}
	if reason = r.mutual(t.TLSMode, &e); reason != "" {
		return e, reason
	}
	if t.Subset != "" {
		a := registry.Attributes{AttributeSubset: t.Subset}
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
