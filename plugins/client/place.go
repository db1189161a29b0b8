package client

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/routes"
)

// Place is an endpoint as the last answer to a lease tells of it, for frameworks
// that keep what an address came with first.
type Place struct{ now atomic.Pointer[placed] }

type placed struct {
	Endpoint
	routes *routes.Table // of its host in the mesh; nil: any endpoint may be called
}

// Place returns the place of an endpoint of the snapshot. In answers to a lease it
// is the same one for as long as the endpoint is there.
func (s Snapshot) Place(e Endpoint) *Place {
	p := s.places[keyOfPlace(e)]
	if p == nil {
		p = new(Place)
		p.now.Store(s.placed(e))
	}
	return p
}

// Endpoint returns what the last answer tells.
func (p *Place) Endpoint() Endpoint { return p.now.Load().Endpoint }

type placeKey struct {
	address string
	service registry.Name
}

func keyOfPlace(e Endpoint) placeKey { return placeKey{e.Address(), e.Service.Name} }

func (s Snapshot) placed(e Endpoint) *placed {
	now := &placed{Endpoint: e}
	if a, err := naming.ParseHostAddress(string(e.Service.Name)); err == nil {
		now.routes = s.Routes[a]
	}
	return now
}

// place returns the snapshot with its places, those of an earlier one where they
// are still there.
func (s Snapshot) place(before map[placeKey]*Place) Snapshot {
	places := make(map[placeKey]*Place, len(s.Endpoints))
	for _, e := range s.Endpoints {
		k := keyOfPlace(e)
		if p := before[k]; p != nil {
			p.now.Store(s.placed(e))
			places[k] = p
		} else {
			places[k] = s.Place(e)
		}
	}
	s.places = places
	return s
}

// Routed returns those of several that a call may go to by the routes of the mesh,
// as a proxy would choose them. The host that gets the call is that of one place,
// by weight; its own routes say which of its places then. Those without a place
// are of another registry.
func Routed[T any](all []T, placeOf func(T) *Place, path string, header func(name string) (string, bool)) []T {
	var one *placed
	var total uint64
	for _, x := range all {
		if p := placeOf(x); p != nil {
			weight := uint64(max(p.now.Load().Weight, 1))      // 0 is not told
			if total += weight; rand.Uint64N(total) < weight { //nolint:gosec // spreads load, keeps no secret
				one = p.now.Load()
			}
		}
	}
	if one == nil || one.routes == nil {
		return all
	}
	subset := ""
	if route := one.routes.Find(path, header); route != nil {
		subset = route.Pick(rand.Uint64N(route.Total())).Subset //nolint:gosec // as above
	}
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool {
		p := placeOf(x).known()
		return p == nil || p.Service.Name != one.Service.Name ||
			subset != "" && !slices.Contains(strings.Split(p.Attribute(mesh.AttributeSubset), ","), subset)
	})
}

// known returns what is known of a place; nil of none.
func (p *Place) known() *placed {
	if p == nil {
		return nil
	}
	return p.now.Load()
}
