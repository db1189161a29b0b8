package harness

import (
	"fmt"
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Differences says field by field in what two readings of one mesh differ, sorted;
// nothing where both report the same. What is offered to nobody counts as not there:
// istiod does not send it. Neither do interfaces and protocols, which each reading
// has from elsewhere, nor the name of an instance that one of them alone knows:
// istiod sends none of WorkloadEntries.
func Differences(one, other map[registry.Name]*registry.Service) []string {
	var all []string
	for name, s := range one {
		o := other[name]
		if o == nil {
			all = append(all, fmt.Sprintf("%s: the second lacks it", name))
			continue
		}
		differ := func(what string, a, b any) {
			if x, y := fmt.Sprint(a), fmt.Sprint(b); x != y {
				all = append(all, fmt.Sprintf("%s: %s: %s, and %s", name, what, x, y))
			}
		}
		differ("namespace", s.Namespace, o.Namespace)
		differ("application", s.Application, o.Application)
		differ("attributes", s.Attributes, o.Attributes)
		a, b := offered(s), offered(o)
		differ("endpoints", slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
		for at, e := range a {
			if f, both := b[at]; both {
				differ(at+" weight", e.Weight, f.Weight)
				differ(at+" zone", e.Zone, f.Zone)
				if e.Instance != "" && f.Instance != "" {
					differ(at+" instance", e.Instance, f.Instance)
				}
				differ(at+" attributes", e.Attributes, f.Attributes)
				differ(at+" health", e.Health, f.Health)
			}
		}
	}
	for name := range other {
		if one[name] == nil {
			all = append(all, fmt.Sprintf("%s: the first lacks it", name))
		}
	}
	slices.Sort(all)
	return all
}

func offered(s *registry.Service) map[string]registry.Endpoint {
	all := make(map[string]registry.Endpoint)
	for _, e := range s.Endpoints {
		if e.Health.Offered() {
			all[e.Address()] = e
		}
	}
	return all
}
