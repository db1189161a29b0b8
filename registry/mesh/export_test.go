package mesh

import (
	"cmp"
	"slices"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Joined is the result of a join.
type Joined struct {
	Services []*registry.Service     // by name
	Skipped  map[string]string       // left out wholly or in part: why
	Unknown  map[registry.Name]error // services that are not known; some have a row
	EDSNames map[string]struct{}     // to ask for
}

// Join joins a whole input. The table of a source must be equal.
func (n *Naming) Join(in JoinInput) Joined {
	out := Joined{
		Skipped: make(map[string]string), Unknown: make(map[registry.Name]error), EDSNames: make(map[string]struct{}),
	}
	for _, c := range in.Clusters {
		if reason := c.skipReason(); reason != "" {
			out.Skipped[c.Name] = reason
		}
	}
	for _, h := range in.hosts() {
		r := n.joinHost(h, in)
		if r.service != nil {
			out.Services = append(out.Services, r.service)
		}
		if r.skipped.Reason != "" {
			out.Skipped[h.address.String()] = r.skipped.Reason
		}
		if r.unknown != nil {
			out.Unknown[registry.Name(h.address.String())] = r.unknown
		}
		for _, name := range r.edsNames {
			out.EDSNames[name] = struct{}{}
		}
	}
	slices.SortFunc(out.Services, func(a, b *registry.Service) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// hosts returns every host that clusters, errors or the mapping name.
func (in *JoinInput) hosts() map[naming.HostAddress]*host {
	hosts := make(map[naming.HostAddress]*host)
	at := func(a naming.HostAddress) *host {
		if hosts[a] == nil {
			hosts[a] = &host{address: a}
		}
		return hosts[a]
	}
	for _, c := range in.Clusters {
		if c.Err == nil {
			at(c.Address).add(c)
		}
	}
	for name := range in.Rejected {
		id, err := naming.ParseCluster(name)
		if a := id.HostAddress(); err == nil && in.Rejected[clusterName(a)] != nil {
			at(a)
		}
	}
	for _, addresses := range in.Mapping.All() {
		for _, a := range addresses {
			at(a)
		}
	}
	return hosts
}
