package admin

import (
	"context"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/redact"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Why returns what is known of a service. The query is a service's name as its
// registry has it, the name of an interface, a service key or a host, with or
// without a port; where it is none of these, a whole part of the name of one
// service alone. Where it is a part of several, or near to the names of some,
// these are returned.
func (s *Server) Why(ctx context.Context, query string) (Why, []registry.Name) {
	all := s.statuses(ctx)
	if why := s.why(query, all); !why.empty() {
		return why, nil
	}
	known := s.known(all)
	named := make(map[registry.Name]bool)
	for word, name := range known {
		if isPart(word, query) {
			named[name] = true
		}
	}
	if len(named) == 0 {
		for _, word := range naming.Near(query, slices.Sorted(maps.Keys(known)), suggested) {
			named[known[word]] = true
		}
		return s.why(query, all), slices.Sorted(maps.Keys(named))
	}
	meant := slices.Sorted(maps.Keys(named))
	if len(meant) > 1 {
		return s.why(query, all), meant
	}
	why := s.why(string(meant[0]), all)
	why.Query = query
	return why, nil
}

// suggested is how many services are named to who asks for one that there is not.
const suggested = 3

// known returns every word by which a service may be named, with the service.
func (s *Server) known(all []bridge.Status) map[string]registry.Name {
	words := make(map[string]registry.Name)
	for _, in := range s.inputs() {
		rows, _ := in.Table.Snapshot()
		for name, sv := range rows {
			words[string(name)] = name
			for _, i := range sv.Interfaces {
				words[i.Name] = name
			}
		}
	}
	for _, st := range all {
		for _, sv := range st.Services {
			words[string(sv.Service)] = sv.Service
			for _, g := range sv.Groups {
				words[g.Name] = sv.Service
			}
		}
	}
	return words
}

// isPart reports whether a query is a part of a name between the separators of
// names, whatever the case of its letters.
func isPart(name, query string) bool {
	const separators = "./:@"
	name, query = strings.ToLower(name), strings.ToLower(query)
	for at := 0; query != ""; at++ {
		i := strings.Index(name[at:], query)
		if i < 0 {
			break
		}
		at += i
		end := at + len(query)
		if (at == 0 || strings.ContainsRune(separators, rune(name[at-1]))) && (end == len(name) || strings.ContainsRune(separators, rune(name[end]))) {
			return true
		}
	}
	return false
}

// why returns what is known of a service by its exact name.
func (s *Server) why(query string, all []bridge.Status) Why {
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
	found := make([]bridge.Status, len(all))
	for i := range all {
		found[i] = all[i].Find(names, about(query))
	}
	why.Services, why.Holds, why.Conflicts = services(s.owner(), found), holds(found), conflicts(found)
	for _, st := range found {
		for _, k := range st.Kept {
			why.Kept = append(why.Kept, Kept{Target: st.Target, Kept: k})
		}
	}
	why.Conditions = slices.DeleteFunc(s.Conditions(), func(c Condition) bool { return !why.passes(c) })
	why.Events = s.opts.Events.about(why.subjects(names))
	return why
}

// passes reports whether a condition is about a source that tells of the service
// or about a target in which it has something.
func (w *Why) passes(c Condition) bool {
	switch c.Direction {
	case OfProcess:
	case OfSource:
		return slices.ContainsFunc(w.Sources, func(s Seen) bool { return s.Source == c.Peer })
	case OfTarget:
		return slices.ContainsFunc(w.Services, func(s Service) bool { return s.Target == c.Peer && (c.Bridge == "" || c.Bridge == s.Bridge) })
	}
	return false
}

// about returns whether a group is what a query names: by its name, in full or,
// where one of the two is a service key and the other not, by the interface. A
// host may have a port.
func about(query string) func(registry.Group) bool {
	asked, noKey := naming.ParseServiceKey(query)
	host, _, _ := net.SplitHostPort(query)
	return func(g registry.Group) bool {
		if g.Name == query || host != "" && g.Name == host || strings.HasSuffix(query, g.Name) && g.String() == query {
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

// empty reports whether nothing is known of a service, whatever was left out.
func (w *Why) empty() bool {
	return len(w.Sources)+len(w.Services)+len(w.Holds)+len(w.Conflicts)+len(w.Kept) == 0
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
