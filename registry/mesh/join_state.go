package mesh

import (
	"slices"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// joinState is a JoinInput and the rows that follow from it, updated host by host. The mutex
// of its joiner guards it.
type joinState struct {
	// Immutable.
	naming Naming
	istiod naming.HostAddress // its endpoints are read even if it is not a service

	// The input, also by host.
	input          JoinInput
	hosts          map[naming.HostAddress]*host
	hostsByEDSName map[string][]naming.HostAddress // which hosts need the endpoints of an EDS name

	dirtyHosts map[naming.HostAddress]struct{} // have to be joined again

	// The output.
	rows         map[naming.HostAddress]hostRow // of hosts with anything to report
	serviceCount int                            // how many rows have a service
	skipped      map[string]string              // why a cluster is not a service; empty: it no longer is skipped
}

func newJoinState(n Naming, istiod naming.HostAddress) *joinState {
	return &joinState{
		naming: n, istiod: istiod,
		input: JoinInput{
			Clusters: map[string]*Cluster{}, Assignments: map[string]*Assignment{},
			Rejected: map[string]error{}, Unknown: map[string]error{},
		},
		hosts: map[naming.HostAddress]*host{}, hostsByEDSName: map[string][]naming.HostAddress{},
		dirtyHosts: map[naming.HostAddress]struct{}{}, rows: map[naming.HostAddress]hostRow{}, skipped: map[string]string{},
	}
}

// apply changes the input and marks the hosts that depend on it as dirty.
func (s *joinState) apply(u update) {
	for name, c := range u.clusters {
		s.setCluster(name, c)
	}
	for name, err := range u.rejected {
		s.setRejected(name, err)
	}
	for name, a := range u.assignments {
		if len(s.hostsByEDSName[name]) > 0 {
			s.input.Assignments[name] = a
			s.markHostsOf(name)
		}
	}
	for name, err := range u.unknown {
		if len(s.hostsByEDSName[name]) > 0 && s.input.Unknown[name] != err { //nolint:errorlint // compares identity
			setOrDeleteErr(s.input.Unknown, name, err)
			s.markHostsOf(name)
		}
	}
	if u.mapping != nil {
		s.setMapping(u.mapping.Mapping)
	}
	if u.rejoin {
		s.markAll()
	}
}

func (s *joinState) setRejected(name string, err error) {
	if err == nil && s.input.Rejected[name] == nil {
		return
	}
	setOrDeleteErr(s.input.Rejected, name, err)
	if id, invalid := naming.ParseCluster(name); invalid == nil {
		s.dirtyHosts[id.HostAddress()] = struct{}{}
	}
}

func setOrDeleteErr(m map[string]error, key string, err error) {
	if err == nil {
		delete(m, key)
	} else {
		m[key] = err
	}
}

// markHostsOf marks the hosts that need the endpoints of an EDS name as dirty.
func (s *joinState) markHostsOf(edsName string) {
	for _, a := range s.hostsByEDSName[edsName] {
		s.dirtyHosts[a] = struct{}{}
	}
}

// markAll marks every host as dirty.
func (s *joinState) markAll() {
	for a := range s.hosts {
		s.dirtyHosts[a] = struct{}{}
	}
	for _, addresses := range s.input.Mapping.All() {
		for _, a := range addresses {
			s.dirtyHosts[a] = struct{}{}
		}
	}
}

func (s *joinState) setMapping(m metadata.Mapping) {
	for _, change := range m.Since(s.input.Mapping) {
		for _, a := range slices.Concat(change.Added, change.Removed, change.Changed) {
			s.dirtyHosts[a] = struct{}{}
		}
	}
	s.input.Mapping = m
}

func (s *joinState) setCluster(name string, c *Cluster) {
	old := s.input.Clusters[name]
	if old != nil && old.skipReason() != "" {
		s.skipped[name] = ""
	}
	if old != nil && old.Err == nil {
		s.dirtyHosts[old.Address] = struct{}{}
		s.hosts[old.Address].remove(old)
		if h := s.hosts[old.Address]; len(h.clusters)+len(h.subsets) == 0 {
			delete(s.hosts, old.Address)
		}
	}
	if c == nil {
		delete(s.input.Clusters, name)
		return
	}
	s.input.Clusters[name] = c
	if c.Err != nil {
		if reason := c.skipReason(); reason != "" {
			s.skipped[name] = reason
		}
		return
	}
	if s.hosts[c.Address] == nil {
		s.hosts[c.Address] = &host{address: c.Address}
	}
	s.hosts[c.Address].add(c)
	s.dirtyHosts[c.Address] = struct{}{}
}

// rowChange is the row of one host before and after a join.
type rowChange struct {
	address     naming.HostAddress
	before, now hostRow
}

// name is the name of the service, and the scope in which it may be unknown.
func (c rowChange) name() registry.Name { return registry.Name(c.address.String()) }

// joinDirty joins the dirty hosts. It returns the changes of their rows, and the EDS names to
// subscribe to and to unsubscribe from. While a service is unknown, its last known row stays.
func (s *joinState) joinDirty() (changes []rowChange, watch, unwatch []string) {
	for a := range s.dirtyHosts {
		before, now := s.rows[a], s.joinAddress(a)
		watch, unwatch = s.setEDSNames(a, before.edsNames, now.edsNames, watch, unwatch)
		if now.unknown != nil && before.service != nil && (now.service == nil || len(now.service.Endpoints) == 0) {
			now.service = before.service // the last known one
		}
		s.setRow(a, before, now)
		changes = append(changes, rowChange{a, before, now})
	}
	clear(s.dirtyHosts)
	slices.SortFunc(changes, func(a, b rowChange) int { return a.address.Compare(b.address) })
	for _, name := range watch {
		delete(s.input.Unknown, name)
	}
	slices.Sort(watch)
	slices.Sort(unwatch)
	return changes, watch, unwatch
}

func (s *joinState) setRow(a naming.HostAddress, before, now hostRow) {
	if now.service == nil && now.skipped.Reason == "" && now.unknown == nil && len(now.edsNames) == 0 {
		delete(s.rows, a)
	} else {
		s.rows[a] = now
	}
	if before.service != nil {
		s.serviceCount--
	}
	if now.service != nil {
		s.serviceCount++
	}
}

// joinAddress returns the row that follows for one host.
func (s *joinState) joinAddress(a naming.HostAddress) hostRow {
	h := s.hosts[a]
	if h == nil {
		if len(s.input.Mapping.Keys(a)) == 0 && s.input.Rejected[clusterName(a)] == nil {
			return hostRow{}
		}
		h = &host{address: a}
	}
	r := s.naming.joinHost(h, s.input)
	if c := h.cluster(); a == s.istiod && c != nil && c.Discovery == DiscoveryEDS &&
		!slices.Contains(r.edsNames, c.EDSName) {
		r.edsNames = append(r.edsNames, c.EDSName)
	}
	return r
}

// setEDSNames records the EDS names that a host needs. It appends a name to watch if the host
// is the first to need it, and to unwatch if no host needs it any more.
func (s *joinState) setEDSNames(
	a naming.HostAddress, before, now, watch, unwatch []string,
) (newWatch, newUnwatch []string) {
	for _, name := range now {
		users := s.hostsByEDSName[name]
		if len(users) == 0 {
			watch = append(watch, name)
		}
		if !slices.Contains(users, a) {
			s.hostsByEDSName[name] = append(users, a)
		}
	}
	for _, name := range before {
		if slices.Contains(now, name) {
			continue
		}
		others := slices.DeleteFunc(s.hostsByEDSName[name], func(o naming.HostAddress) bool { return o == a })
		s.hostsByEDSName[name] = others
		if len(others) == 0 {
			delete(s.hostsByEDSName, name)
			delete(s.input.Assignments, name)
			delete(s.input.Unknown, name)
			unwatch = append(unwatch, name)
		}
	}
	return watch, unwatch
}

// services returns the services of all rows.
func (s *joinState) services() []*registry.Service {
	out := make([]*registry.Service, 0, s.serviceCount)
	for _, r := range s.rows {
		if r.service != nil {
			out = append(out, r.service)
		}
	}
	return out
}

// interestNames returns the names by which readers may request a host.
func (s *joinState) interestNames(a naming.HostAddress) []string {
	h := s.hosts[a]
	if h == nil {
		h = &host{address: a}
	}
	return h.interestNames(s.naming.interfacesOf(a, s.input.Mapping))
}

// replicas returns the addresses of istiod's replicas that accept requests; nil: unknown.
func (s *joinState) replicas() []string {
	h := s.hosts[s.istiod]
	if h == nil || h.cluster() == nil {
		return nil
	}
	a, _, _ := h.cluster().assignmentIn(s.input)
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
