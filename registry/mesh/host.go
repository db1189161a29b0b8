package mesh

import (
	"cmp"
	"slices"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// host is the clusters of one host address.
type host struct {
	address  naming.HostAddress
	clusters []*Cluster // without a subset, sorted by name: one for each spelling of the host
	subsets  []*Cluster // of its subsets, sorted by name
}

// cluster returns the cluster without a subset; nil: there is none. If the host has several
// spellings, it is the first by name.
func (h *host) cluster() *Cluster {
	if len(h.clusters) == 0 {
		return nil
	}
	return h.clusters[0]
}

func (h *host) add(c *Cluster) {
	if c.ID.Subset == "" {
		h.clusters = insertByName(h.clusters, c)
	} else {
		h.subsets = insertByName(h.subsets, c)
	}
}

func (h *host) remove(c *Cluster) {
	same := func(o *Cluster) bool { return o == c }
	h.clusters = slices.DeleteFunc(h.clusters, same)
	h.subsets = slices.DeleteFunc(h.subsets, same)
}

// interestNames returns the names by which readers may request the host.
func (h *host) interestNames(interfaces []registry.Interface) []string {
	names := []string{h.address.Host, h.address.String()}
	if c := h.cluster(); c != nil && c.Application != "" {
		names = append(names, c.Application)
	}
	for _, i := range interfaces {
		names = append(names, i.Name, metadata.KeyOf(i).String())
	}
	return names
}

// subsetsOf returns the subsets of each endpoint by its address, and the EDS names that they
// depend on.
func (h *host) subsetsOf(in JoinInput) (subsets map[string]string, edsNames []string) {
	subsets = make(map[string]string)
	for _, c := range h.subsets {
		a, names, _ := c.assignmentIn(in)
		edsNames = append(edsNames, names...)
		if a == nil {
			continue // the endpoints exist even while their subset is unknown
		}
		for _, e := range a.Endpoints {
			key := e.Address()
			if others := subsets[key]; others != "" {
				subsets[key] = others + "," + c.ID.Subset
			} else {
				subsets[key] = c.ID.Subset
			}
		}
	}
	return subsets, edsNames
}

// clusterName returns istiod's name for the cluster of an address, without a subset.
func clusterName(a naming.HostAddress) string {
	return naming.Cluster{Direction: naming.Outbound, Port: a.Port, Host: a.Host}.String()
}

func insertByName(sorted []*Cluster, c *Cluster) []*Cluster {
	at, _ := slices.BinarySearchFunc(sorted, c, func(a, b *Cluster) int { return cmp.Compare(a.Name, b.Name) })
	return slices.Insert(sorted, at, c)
}
