package admin

import (
	"cmp"
	"context"
	"iter"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/redact"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Why returns everything that is known of a service. The query is one of:
//
//   - the name of the service in its registry, or its host or cluster in the mesh
//   - an interface or a service key
//   - the address of an entry that is held, kept or in conflict
//   - the id of a hold
//
// If nothing has that name, the query may be an application, a host without a port, or
// the address of an endpoint.
func (rep *reporter) Why(ctx context.Context, query string) Why {
	if c, err := naming.ParseCluster(query); err == nil && c.Host != "" { // a cluster, as istioctl prints it
		query = c.HostAddress().String()
	}
	why := Why{
		Query: query, Sources: []Seen{}, Services: []Service{}, Skipped: []Skipped{},
		Holds: []Hold{}, Conflicts: []Conflict{}, Events: []Event{},
	}
	all := rep.statuses(ctx)
	conditions := rep.conditions(all, nil)
	names := rep.matchingServices(all, query, fullNames)
	if len(names) == 0 {
		names = rep.matchingServices(all, query, shortNames)
	}
	for _, in := range rep.current().inputs {
		why.Sources = append(why.Sources, seenIn(in, names)...)
		for _, sk := range omittedInputs(in.Table) {
			if strings.Contains(sk.Input, query) {
				why.Skipped = append(why.Skipped, sk)
			}
		}
	}
	for i, st := range all {
		withAddress, hasName := groupsAt(st, query), groupMatcher(query)
		all[i] = st.Find(names, func(g registry.Group) bool { return withAddress[g] || hasName(g) })
	}
	why.Services, why.Holds, why.Conflicts = servicesOf(rep.current().owner, all), holdsOf(all), conflictsOf(all)
	for _, st := range all {
		for _, k := range st.Kept {
			why.Kept = append(why.Kept, Kept{Target: st.Target, Kept: k})
		}
	}
	why.Conditions = slices.DeleteFunc(conditions, func(c Condition) bool { return !why.concerns(c) })
	names[registry.Name(query)] = true
	why.Events = rep.opts.Events.of(why.subjects(names))
	return why
}

// matchingServices returns the services that a query names: by one of the names that
// namesOf returns, or by the name of a group with their entries.
func (rep *reporter) matchingServices(
	all []bridge.Status, query string, namesOf func(*registry.Service) []string,
) map[registry.Name]bool {
	names, isGroup := make(map[registry.Name]bool), groupMatcher(query)
	for sv := range rep.knownServices(all) {
		if slices.Contains(namesOf(sv), query) {
			names[sv.Name] = true
		}
	}
	for _, st := range all {
		for _, sv := range st.Services {
			if slices.ContainsFunc(sv.Groups, isGroup) {
				names[sv.Service] = true
			}
		}
	}
	return names
}

// knownServices yields the services that sources report and the services of targets. Of
// the latter, only the name is known.
func (rep *reporter) knownServices(all []bridge.Status) iter.Seq[*registry.Service] {
	return func(yield func(*registry.Service) bool) {
		for _, in := range rep.current().inputs {
			rows, _ := in.Table.Snapshot()
			for _, sv := range rows {
				if !yield(sv) {
					return
				}
			}
		}
		for _, st := range all {
			for _, sv := range st.Services {
				if !yield(&registry.Service{Name: sv.Service}) {
					return
				}
			}
		}
	}
}

// groupsAt returns the groups of a target in which an entry with the queried address is held,
// kept or in conflict. If the query is the id of a hold, it returns the groups of the hold.
func groupsAt(st bridge.Status, query string) map[registry.Group]bool {
	groups := make(map[registry.Group]bool)
	addMentioned := func(in []registry.Group, entries []string) {
		for _, e := range entries {
			if !mentions(e, query) {
				continue
			}
			for _, g := range in {
				groups[g] = groups[g] || strings.HasPrefix(e, g.String()+" ")
			}
		}
	}
	for _, h := range st.Holds {
		addMentioned(h.Groups, h.Entries)
		for _, g := range h.Groups {
			groups[g] = groups[g] || h.ID == query
		}
	}
	for _, sv := range st.Services {
		addMentioned(sv.Groups, sv.Left)
	}
	for _, k := range st.Kept {
		addMentioned(k.Groups, k.Keys)
	}
	for _, c := range st.Conflicts {
		groups[c.Group] = groups[c.Group] || mentions(c.Key, query)
	}
	return groups
}

// mentions reports whether a text contains an address (host:port) that is not a part of a
// longer address.
func mentions(text, address string) bool {
	if _, ok := hostOf(address); !ok {
		return false
	}
	isPartOfHost := func(r rune) bool {
		return r == '.' || r == '-' || r == ':' || unicode.IsLetter(r) || unicode.IsDigit(r)
	}
	for {
		i := strings.Index(text, address)
		if i < 0 {
			return false
		}
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		text = text[i+len(address):]
		after, _ := utf8.DecodeRuneInString(text)
		if !isPartOfHost(before) && !unicode.IsDigit(after) {
			return true
		}
	}
}

// fullNames returns the names of a service that no other service has, and the interfaces
// and service keys that it provides. If only targets know the service, its name may be a
// service key.
func fullNames(sv *registry.Service) []string {
	names := []string{string(sv.Name)}
	native := string(sv.Name[strings.LastIndexByte(string(sv.Name), '/')+1:])
	if k, err := naming.ParseServiceKey(native); err == nil {
		names = append(names, k.Interface, native)
	}
	for _, i := range sv.Interfaces {
		names = append(names, i.Name, serviceKey(i))
	}
	return names
}

// shortNames returns the parts of a service's name that operators use, and the addresses
// of its endpoints.
func shortNames(sv *registry.Service) []string {
	name := string(sv.Name)
	names := []string{name[strings.LastIndexByte(name, '/')+1:]}
	if host, ok := hostOf(name); ok {
		label, _, _ := strings.Cut(host, ".")
		names = append(names, host, label)
	}
	if sv.Application != "" {
		names = append(names, sv.Application)
	}
	for _, e := range sv.Endpoints {
		names = append(names, e.Address())
	}
	return names
}

// hostOf returns the host of host:port.
func hostOf(address string) (host string, ok bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return host, err == nil
}

// similarServices returns the services with names similar to a query that matches nothing.
func (rep *reporter) similarServices(ctx context.Context, query string) []string {
	var names []alias
	for sv := range rep.knownServices(rep.statuses(ctx)) {
		for _, n := range slices.Concat(fullNames(sv), shortNames(sv)) {
			names = append(names, alias{n, string(sv.Name)})
		}
	}
	return nearest(query, names)
}

// concerns reports whether a condition belongs to a source or target of the service. If no
// source reports the service, it may belong to any source. If the service is in no target,
// it may belong to any target.
func (w *Why) concerns(c Condition) bool {
	switch c.Direction {
	case OfSource:
		return len(w.Sources) == 0 || slices.ContainsFunc(w.Sources, func(s Seen) bool { return s.Source == c.Registry })
	case OfTarget:
		return len(w.Services) == 0 || slices.ContainsFunc(w.Services, func(sv Service) bool {
			return sv.Target == c.Registry && (c.Bridge == "" || sv.Bridge == c.Bridge)
		})
	default:
		return false
	}
}

// groupMatcher returns a function that reports whether a query names a group: by its name
// or, if only one of the two is a service key, by the interface. A host may have its port.
func groupMatcher(query string) func(registry.Group) bool {
	queriedKey, errKey := naming.ParseServiceKey(query)
	host, isHost := hostOf(query)
	return func(g registry.Group) bool {
		if g.Name == query || isHost && g.Name == host || strings.HasSuffix(query, g.Name) && g.String() == query {
			return true
		}
		if errKey == nil {
			return g.Name == queriedKey.Interface
		}
		label, _, _ := strings.Cut(g.Name, ".")
		if g.Kind == serviceentry.Kind && label == query { // the host of a plain name
			return true
		}
		key, err := naming.ParseServiceKey(g.Name)
		return err == nil && key.Interface == query
	}
}

// subjects returns the subjects of events about the service: its names, its groups and its
// holds.
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

// empty reports whether the query matched nothing.
func (w *Why) empty() bool {
	return len(w.Sources)+len(w.Services)+len(w.Holds)+len(w.Conflicts)+len(w.Kept)+len(w.Skipped) == 0
}

// seenIn returns the named services as a source reports them.
func seenIn(in Input, names map[registry.Name]bool) []Seen {
	rows, certainty := in.Table.Snapshot()
	found := []Seen{}
	for name := range names {
		sv := rows[name]
		if sv == nil {
			continue
		}
		seen := Seen{
			Source: in.Name, Service: name, Keys: serviceKeys(sv.Interfaces),
			Attributes: redact.Map(sv.Attributes), Endpoints: endpointsOf(sv),
		}
		if err := certainty.Of(name); err != nil {
			seen.Unknown = err.Error()
		}
		found = append(found, seen)
	}
	slices.SortFunc(found, func(a, b Seen) int { return strings.Compare(string(a.Service), string(b.Service)) })
	return found
}

func serviceKeys(interfaces []registry.Interface) []string {
	list := make([]string, 0, len(interfaces))
	for _, i := range interfaces {
		list = append(list, serviceKey(i))
	}
	return list
}

// serviceKey returns the service key of an interface: providers:name:version:group.
func serviceKey(i registry.Interface) string {
	return strings.Join([]string{"providers", i.Name, i.Version, i.Group}, ":")
}

func endpointsOf(sv *registry.Service) []Endpoint {
	list := make([]Endpoint, 0, len(sv.Endpoints))
	for _, e := range sv.Endpoints {
		protocol := e.Protocol
		if protocol == "" {
			protocol = sv.Protocol
		}
		list = append(list, Endpoint{
			Address: e.Address(), Health: e.Health.String(), Offered: e.Health.Offered(), Protocol: protocol,
			Weight: e.Weight, Zone: e.Zone, Attributes: redact.Map(e.Attributes), Keys: serviceKeys(e.Interfaces),
		})
	}
	return list
}

// An alias is one of the texts by which a service or hold can be queried, and its name.
type alias struct{ text, name string }

// maxSuggestions is how many names a suggestion has, at most.
const maxSuggestions = 3

// nearest returns the names whose texts are most similar to a query: those that contain it,
// and those that differ from it by a few typing errors.
func nearest(query string, all []alias) []string {
	type near struct {
		name     string
		distance int
	}
	var list []near
	maxDistance := max(2, len(query)/4)
	for _, a := range all {
		d := maxDistance + 1
		switch {
		case query != "" && strings.Contains(a.text, query):
			d = 1
		case max(len(a.text), len(query))-min(len(a.text), len(query)) <= maxDistance:
			d = naming.Distance(a.text, query)
		}
		if d <= maxDistance {
			list = append(list, near{a.name, d})
		}
	}
	slices.SortFunc(list, func(a, b near) int { return cmp.Or(a.distance-b.distance, cmp.Compare(a.name, b.name)) })
	var names []string
	for _, n := range list {
		if len(names) < maxSuggestions && !slices.Contains(names, n.name) {
			names = append(names, n.name)
		}
	}
	return names
}

// didYouMean returns a question that suggests names, or an empty text if there are none.
func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(names, " or ") + "?"
}
