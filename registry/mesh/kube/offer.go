package kube

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

// offer is what one object says of one port of one host.
type offer struct {
	id          naming.Cluster
	namespace   string
	application string
	created     int64               // in seconds
	endpoints   []mesh.EndpointSpec // sorted
	none        bool                // callers reach the address that they called: it has no endpoints for anybody
	skip        string              // why it is no service; empty: it is one
}

func (o *offer) equal(p *offer) bool {
	return o.id == p.id && o.namespace == p.namespace && o.application == p.application && o.created == p.created &&
		o.none == p.none && o.skip == p.skip && slices.Equal(o.endpoints, p.endpoints)
}

// sort puts endpoints in order, each once.
func (o *offer) sort() {
	slices.SortFunc(o.endpoints, func(a, b mesh.EndpointSpec) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Health, b.Health),
			cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Weight, b.Weight),
			cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.TLSMode, b.TLSMode), cmp.Compare(a.Subset, b.Subset), cmp.Compare(a.Skip, b.Skip))
	})
	o.endpoints = slices.Compact(o.endpoints)
}

// cluster makes one of what all objects say of it. Of several the Service comes
// before a ServiceEntry, and the older before the younger, as with istiod; those
// of its namespace add their endpoints.
func (w *World) cluster(name string) *mesh.Cluster {
	all := w.offers[name]
	owners := slices.SortedFunc(maps.Keys(all), func(a, b owner) int {
		return cmp.Or(all[a].rank(a)-all[b].rank(b), cmp.Compare(all[a].created, all[b].created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	first := all[owners[0]]
	if first.skip != "" {
		return &mesh.Cluster{Name: name, Err: errors.New(first.skip)}
	}
	var inline *mesh.Assignment
	if !first.none {
		var endpoints []mesh.EndpointSpec
		for _, o := range owners {
			if p := all[o]; p.namespace == first.namespace && p.skip == "" && !p.none {
				endpoints = append(endpoints, p.endpoints...)
			}
		}
		inline = w.rules.Reading.Assignment(endpoints)
	}
	c := mesh.NewCluster(first.id, inline)
	c.Namespace, c.Application = first.namespace, first.application
	return c
}

// rank puts what is a service before what is none, and Services before
// ServiceEntries.
func (o *offer) rank(by owner) (rank int) {
	if o.skip != "" {
		rank += 2
	}
	if by.entry {
		rank++
	}
	return rank
}

// derived is what follows from an owner.
type derived struct {
	offers  map[string]*offer // by name of cluster
	claims  []metadata.Claim
	skipped []metadata.PublicationError
	uses    map[used]struct{}
	unread  error // why the object cannot be read; the rest is as it was
}

// claim adds keys that an object carries to what an owner provides.
func (d *derived) claim(o owner, client string, m *meta.ObjectMeta, keys Keys, at map[string][]port) {
	wishes, skipped := keys.of(client, m)
	d.skipped = append(d.skipped, skipped...)
	for _, host := range slices.Sorted(maps.Keys(at)) {
		for _, w := range wishes {
			number, reason := w.at(at[host])
			if reason != "" {
				d.skipped = append(d.skipped, metadata.PublicationError{Client: client, Text: naming.Quote(w.key.String()), Reason: reason})
				continue
			}
			address := naming.Cluster{Direction: naming.Outbound, Port: number, Host: host}.HostAddress()
			d.claims = append(d.claims, metadata.Claim{Key: w.key, Address: address, Client: o.String()})
		}
	}
}

// tidy puts claims and skipped in order, each once.
func (d *derived) tidy() {
	slices.SortFunc(d.claims, func(a, b metadata.Claim) int { return cmp.Or(a.Key.Compare(b.Key), a.Address.Compare(b.Address)) })
	d.claims = slices.Compact(d.claims)
	slices.SortFunc(d.skipped, func(a, b metadata.PublicationError) int {
		return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Text, b.Text), cmp.Compare(a.Reason, b.Reason))
	})
	d.skipped = slices.Compact(d.skipped)
}
