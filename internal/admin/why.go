package admin

import (
	"context"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/internal/redact"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Why returns what is known of a service. The query is a service's name as
// its registry has it, the name of an interface, or a service key.
func (s *Server) Why(ctx context.Context, query string) Why {
	why := Why{Query: query, Sources: []Seen{}, Services: []Service{}, Skipped: []Skipped{}, Holds: []Hold{}, Conflicts: []Conflict{}, Events: []Event{}}
	names := map[registry.Name]bool{registry.Name(query): true} // a source may know it no more
	for _, in := range s.inputs() {
		for _, seen := range lookup(in, query) {
			names[seen.Service] = true
			why.Sources = append(why.Sources, seen)
		}
		for _, sk := range skipped(in.Table) {
			if strings.Contains(sk.Input, query) {
				why.Skipped = append(why.Skipped, sk)
			}
		}
	}
	all := s.statuses(ctx)
	conditions := s.conditions(all, nil)
	for i := range all {
		all[i] = all[i].Find(names, about(query))
	}
	why.Services, why.Holds, why.Conflicts = services(s.owner(), all), holds(all), conflicts(all)
	for _, st := range all {
		for _, k := range st.Kept {
			why.Kept = append(why.Kept, Kept{Target: st.Target, Kept: k})
		}
	}
	why.Conditions = slices.DeleteFunc(conditions, func(c Condition) bool { return !why.passes(c) })
	why.Events = s.opts.Events.about(why.subjects(names))
	return why
}

// passes reports whether a condition is of a source or target that the service
// passes. One that no source tells of may come from any, and one that is in no
// target yet may go to any.
func (w *Why) passes(c Condition) bool {
	switch c.Direction {
	case OfSource:
		return len(w.Sources) == 0 || slices.ContainsFunc(w.Sources, func(s Seen) bool { return s.Source == c.Peer })
	case OfTarget:
		return len(w.Services) == 0 || slices.ContainsFunc(w.Services, func(sv Service) bool {
			return sv.Target == c.Peer && (c.Bridge == "" || sv.Bridge == c.Bridge)
		})
	default:
		return false
	}
}

// about returns whether a group is what a query names: by its name, in full or,
// where one of the two is a service key and the other not, by the interface.
func about(query string) func(registry.Group) bool {
	asked, noKey := naming.ParseServiceKey(query)
	return func(g registry.Group) bool {
		if g.Name == query || strings.HasSuffix(query, g.Name) && g.String() == query {
			return true
		}
		if noKey == nil {
			return g.Name == asked.Interface
		}
		key, err := naming.ParseServiceKey(g.Name)
		return err == nil && key.Interface == query
	}
}

// subjects returns what the events that matter here are about.
func (w *Why) subjects(names map[registry.Name]bool) map[string]bool {
	all := make(map[string]bool)
	for name := range names {
		all[string(name)] = true
	}
	for _, sv := range w.Services {
		all[string(sv.Service)] = true
		for _, g := range sv.Groups {
			all[g.String()] = true
		}
	}
	for _, h := range w.Holds {
		all[h.ID] = true
	}
	return all
}

func (w *Why) empty() bool {
	return len(w.Sources)+len(w.Services)+len(w.Holds)+len(w.Conflicts)+len(w.Kept)+len(w.Skipped) == 0
}

func lookup(in Input, query string) []Seen {
	rows, known := in.Table.Snapshot()
	found := []Seen{}
	for name, sv := range rows {
		if string(name) != query && !slices.ContainsFunc(sv.Interfaces, func(i registry.Interface) bool {
			return i.Name == query || key(i) == query
		}) {
			continue
		}
		seen := Seen{Source: in.Name, Service: name, Keys: []string{}, Attributes: redact.Map(sv.Attributes), Endpoints: endpoints(sv)}
		for _, i := range sv.Interfaces {
			seen.Keys = append(seen.Keys, key(i))
		}
		if err := known.Of(name); err != nil {
			seen.Unknown = err.Error()
		}
		found = append(found, seen)
	}
	slices.SortFunc(found, func(a, b Seen) int { return strings.Compare(string(a.Service), string(b.Service)) })
	return found
}

// key returns the service key of an interface: providers:name:version:group.
func key(i registry.Interface) string {
	return strings.Join([]string{"providers", i.Name, i.Version, i.Group}, ":")
}

func endpoints(sv *registry.Service) []Endpoint {
	list := make([]Endpoint, 0, len(sv.Endpoints))
	for _, e := range sv.Endpoints {
		protocol := e.Protocol
		if protocol == "" {
			protocol = sv.Protocol
		}
		list = append(list, Endpoint{
			Address: e.Address(), Health: e.Health.String(), Offered: e.Health.Offered(), Protocol: protocol,
			Weight: e.Weight, Zone: e.Zone, Attributes: redact.Map(e.Attributes),
		})
	}
	return list
}
