package mesh

import (
	"slices"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// state is what is known of the mesh and what follows from it, kept up to date
// host by host: Naming.Join of the same view gives the same rows.
type state struct {
	naming Naming
	view   View
	hosts  map[naming.HostAddress]*host
	users  map[string][]naming.HostAddress // hosts by the EDS names they need
	dirty  map[naming.HostAddress]struct{}
	rows   map[naming.HostAddress]row // of hosts with anything to report
	odd    map[string]string          // clusters that are no service, with the reason; empty: no longer
	count  int                        // of rows with a service
	extra  naming.HostAddress         // a host whose endpoints are needed though it is no service
}

func newState(n Naming, extra naming.HostAddress) *state {
	return &state{
		naming: n, extra: extra,
		view: View{
			Clusters: map[string]*Cluster{}, Assignments: map[string]*Assignment{},
			Rejected: map[string]error{}, Silent: map[string]error{},
		},
		hosts: map[naming.HostAddress]*host{}, users: map[string][]naming.HostAddress{},
		dirty: map[naming.HostAddress]struct{}{}, rows: map[naming.HostAddress]row{}, odd: map[string]string{},
	}
}

// apply takes an update in.
func (s *state) apply(u update) {
	for name, c := range u.clusters {
		s.setCluster(name, c)
	}
	for name, err := range u.rejected {
		if err == nil && s.view.Rejected[name] == nil {
			continue
		}
		set(s.view.Rejected, name, err)
		if id, bad := naming.ParseCluster(name); bad == nil {
			s.dirty[id.HostAddress()] = struct{}{}
		}
	}
	for name, a := range u.assignments {
		if len(s.users[name]) > 0 {
			s.view.Assignments[name] = a
			s.touch(name)
		}
	}
	for name, err := range u.silent {
		if len(s.users[name]) > 0 && s.view.Silent[name] != err { //nolint:errorlint // only whether it changed
			set(s.view.Silent, name, err)
			s.touch(name)
		}
	}
	if u.mapping != nil {
		s.setMapping(u.mapping.Mapping)
	}
}

// touchAll has every host joined anew.
func (s *state) touchAll() {
	for a := range s.hosts {
		s.dirty[a] = struct{}{}
	}
	for _, addresses := range s.view.Mapping.All() {
		for _, a := range addresses {
			s.dirty[a] = struct{}{}
		}
	}
}

func set(m map[string]error, key string, err error) {
	if err == nil {
		delete(m, key)
	} else {
		m[key] = err
	}
}

func (s *state) touch(eds string) {
	for _, a := range s.users[eds] {
		s.dirty[a] = struct{}{}
	}
}

func (s *state) setMapping(m metadata.Mapping) {
	for _, change := range m.Since(s.view.Mapping) {
		for _, a := range slices.Concat(change.Added, change.Removed) {
			s.dirty[a] = struct{}{}
		}
	}
	s.view.Mapping = m
}

func (s *state) setCluster(name string, c *Cluster) {
	old := s.view.Clusters[name]
	if old != nil && old.skip() != "" {
		s.odd[name] = ""
	}
	if old != nil && old.Err == nil {
		s.dirty[old.Address] = struct{}{}
		s.hosts[old.Address].remove(old)
		if h := s.hosts[old.Address]; len(h.wholes)+len(h.subsets) == 0 {
			delete(s.hosts, old.Address)
		}
	}
	if c == nil {
		delete(s.view.Clusters, name)
		return
	}
	s.view.Clusters[name] = c
	if c.Err != nil {
		if reason := c.skip(); reason != "" {
			s.odd[name] = reason
		}
		return
	}
	if s.hosts[c.Address] == nil {
		s.hosts[c.Address] = &host{address: c.Address}
	}
	s.hosts[c.Address].add(c)
	s.dirty[c.Address] = struct{}{}
}

// change is what became of one host.
type change struct {
	address     naming.HostAddress
	before, now row
}

// name is that of the row, and of the scope in which it may be unknown.
func (c change) name() registry.Name { return registry.Name(c.address.String()) }

// joinDirty joins the hosts that changed, and returns what became of them with
// the endpoints that have to be asked for from now on, and no longer.
func (s *state) joinDirty() (changes []change, watch, unwatch []string) {
	for a := range s.dirty {
		before, now := s.rows[a], s.join(a)
		watch, unwatch = s.setNeeded(a, before.needed, now.needed, watch, unwatch)
		if now.unknown != nil && before.service != nil && (now.service == nil || len(now.service.Endpoints) == 0) {
			now.service = before.service // the last that is known
		}
		if now.service == nil && now.skipped == "" && now.unknown == nil && len(now.needed) == 0 {
			delete(s.rows, a)
		} else {
			s.rows[a] = now
		}
		s.count += one(now) - one(before)
		changes = append(changes, change{a, before, now})
	}
	clear(s.dirty)
	slices.SortFunc(changes, func(a, b change) int { return a.address.Compare(b.address) })
	for _, name := range watch {
		delete(s.view.Silent, name)
	}
	slices.Sort(watch)
	slices.Sort(unwatch)
	return changes, watch, unwatch
}

func one(r row) int {
	if r.service == nil {
		return 0
	}
	return 1
}

func (s *state) join(a naming.HostAddress) row {
	h := s.hosts[a]
	if h == nil {
		if len(s.view.Mapping.Keys(a)) == 0 && s.view.Rejected[wholeName(a)] == nil {
			return row{}
		}
		h = &host{address: a}
	}
	r := s.naming.row(h, s.view)
	if c := h.whole(); a == s.extra && c != nil && c.Discovery == DiscoveryEDS && !slices.Contains(r.needed, c.EDSName) {
		r.needed = append(r.needed, c.EDSName)
	}
	return r
}

// setNeeded notes which endpoints a host needs, and adds to watch and unwatch what
// nobody needed before or needs any more.
func (s *state) setNeeded(a naming.HostAddress, before, now, watch, unwatch []string) (w, u []string) {
	for _, name := range now {
		users := s.users[name]
		if len(users) == 0 {
			watch = append(watch, name)
		}
		if !slices.Contains(users, a) {
			s.users[name] = append(users, a)
		}
	}
	for _, name := range before {
		if slices.Contains(now, name) {
			continue
		}
		left := slices.DeleteFunc(s.users[name], func(o naming.HostAddress) bool { return o == a })
		s.users[name] = left
		if len(left) == 0 {
			delete(s.users, name)
			delete(s.view.Assignments, name)
			delete(s.view.Silent, name)
			unwatch = append(unwatch, name)
		}
	}
	return watch, unwatch
}

// services returns the rows.
func (s *state) services() []*registry.Service {
	out := make([]*registry.Service, 0, s.count)
	for _, r := range s.rows {
		if r.service != nil {
			out = append(out, r.service)
		}
	}
	return out
}

// namesOf returns all names by which a host may be asked for.
func (s *state) namesOf(a naming.HostAddress) []string {
	h := s.hosts[a]
	if h == nil {
		h = &host{address: a}
	}
	return h.names(s.naming.interfaces(a, s.view.Mapping))
}

// empty reports whether no cluster stands for a service any more.
func (s *state) empty() bool { return len(s.hosts) == 0 }

// replicas returns the addresses of the extra host.
func (s *state) replicas() []string {
	h := s.hosts[s.extra]
	if h == nil || h.whole() == nil {
		return nil
	}
	a, _, _ := h.whole().assignment(s.view)
	if a == nil {
		return nil
	}
	var out []string
	for _, e := range a.Endpoints {
		if e.Health.Offered() {
			out = append(out, e.Address())
		}
	}
	return out
}
