package metadata

import (
	"iter"
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/naming"
)

// Mapping is the interface mapping: the host addresses of service keys, and the keys
// of addresses. It is immutable; the zero Mapping is empty. The results of its methods
// are sorted and shared, and must not be changed.
type Mapping struct {
	hosts   map[naming.ServiceKey][]naming.HostAddress
	keys    map[naming.HostAddress][]naming.ServiceKey
	clients map[placement]string
	without map[placement]Hosts // see Without; empty for keys that all endpoints provide
}

// placement is a key at an address.
type placement struct {
	key     naming.ServiceKey
	address naming.HostAddress
}

// NewMapping merges the claims of any number of clients.
func NewMapping(claims iter.Seq[Claim]) Mapping {
	m := Mapping{
		hosts:   make(map[naming.ServiceKey][]naming.HostAddress),
		keys:    make(map[naming.HostAddress][]naming.ServiceKey),
		clients: make(map[placement]string),
		without: make(map[placement]Hosts),
	}
	for c := range claims {
		p := placement{c.Key, c.Address}
		if first, seen := m.clients[p]; seen {
			m.clients[p] = min(first, c.Client)
			m.setWithout(p, m.without[p].intersect(c.Without))
			continue
		}
		m.clients[p] = c.Client
		m.setWithout(p, c.Without)
		m.hosts[c.Key] = append(m.hosts[c.Key], c.Address)
		m.keys[c.Address] = append(m.keys[c.Address], c.Key)
	}
	for _, addresses := range m.hosts {
		slices.SortFunc(addresses, naming.HostAddress.Compare)
	}
	for _, keys := range m.keys {
		slices.SortFunc(keys, naming.ServiceKey.Compare)
	}
	return m
}

func (m Mapping) setWithout(p placement, hosts Hosts) {
	if hosts == "" {
		delete(m.without, p)
	} else {
		m.without[p] = hosts
	}
}

// Len returns the number of keys.
func (m Mapping) Len() int { return len(m.hosts) }

// Hosts returns the addresses of a key.
func (m Mapping) Hosts(key naming.ServiceKey) []naming.HostAddress { return m.hosts[key] }

// Keys returns the keys of an address.
func (m Mapping) Keys(address naming.HostAddress) []naming.ServiceKey { return m.keys[address] }

// Client returns the id of the client that published a key for an address, or the first
// in order of several clients.
func (m Mapping) Client(key naming.ServiceKey, address naming.HostAddress) string {
	return m.clients[placement{key, address}]
}

// Without returns the endpoints of an address that are known not to provide a key.
func (m Mapping) Without(key naming.ServiceKey, address naming.HostAddress) Hosts {
	return m.without[placement{key, address}]
}

// All returns every key with its addresses, in key order.
func (m Mapping) All() iter.Seq2[naming.ServiceKey, []naming.HostAddress] {
	return func(yield func(naming.ServiceKey, []naming.HostAddress) bool) {
		for _, key := range slices.SortedFunc(maps.Keys(m.hosts), naming.ServiceKey.Compare) {
			if !yield(key, m.hosts[key]) {
				return
			}
		}
	}
}

// Equal reports whether two mappings have the same keys, addresses and endpoints. Their
// clients may differ.
func (m Mapping) Equal(o Mapping) bool {
	return maps.EqualFunc(m.hosts, o.hosts, slices.Equal[[]naming.HostAddress]) && maps.Equal(m.without, o.without)
}

// KeyChange is the difference of a key between two mappings.
type KeyChange struct {
	Key            naming.ServiceKey
	Added, Removed []naming.HostAddress
	Changed        []naming.HostAddress // addresses of which other endpoints provide it now
}

// Since returns the differences to an older mapping, in key order.
func (m Mapping) Since(old Mapping) []KeyChange {
	var changes []KeyChange
	for key, now := range m.hosts {
		before, changed := old.hosts[key], m.changed(old, key)
		if !slices.Equal(now, before) || changed != nil {
			changes = append(changes, KeyChange{
				Key: key, Added: without(now, before), Removed: without(before, now), Changed: changed,
			})
		}
	}
	for key, before := range old.hosts {
		if _, still := m.hosts[key]; !still {
			changes = append(changes, KeyChange{Key: key, Removed: before})
		}
	}
	slices.SortFunc(changes, func(a, b KeyChange) int { return a.Key.Compare(b.Key) })
	return changes
}

// changed returns the addresses that had a key before and still have it, and of which
// other endpoints provide it now.
func (m Mapping) changed(old Mapping, key naming.ServiceKey) (all []naming.HostAddress) {
	if len(m.without)+len(old.without) == 0 { // nearly always
		return nil
	}
	for _, address := range m.hosts[key] {
		p := placement{key, address}
		if _, had := old.clients[p]; had && m.without[p] != old.without[p] {
			all = append(all, address)
		}
	}
	return all
}

// without returns the elements of a that are not in b. Both are sorted.
func without(a, b []naming.HostAddress) []naming.HostAddress {
	var remaining []naming.HostAddress
	for _, address := range a {
		if _, found := slices.BinarySearchFunc(b, address, naming.HostAddress.Compare); !found {
			remaining = append(remaining, address)
		}
	}
	return remaining
}

// The kinds of Conflict.
const (
	// ManyHosts is one key at several hosts. All of them serve it. Often two
	// applications provide one interface by mistake.
	ManyHosts ConflictKind = "many hosts"
	// ManyPorts is one key at several ports of one host. All of them serve it, so that
	// a provider can move to another port.
	ManyPorts ConflictKind = "many ports"
)

// ConflictKind is the kind of a contradiction between claims.
type ConflictKind string

// Conflict is a key with different claims. It is reported to operators; the mapping
// contains all claims.
type Conflict struct {
	Kind      ConflictKind
	Key       naming.ServiceKey
	Addresses []naming.HostAddress
	Clients   []string // one for each address
}

// Conflicts returns the conflicts of all keys, in key order.
func (m Mapping) Conflicts() []Conflict {
	var conflicts []Conflict
	for key, addresses := range m.hosts {
		if len(addresses) < 2 { // nearly always
			continue
		}
		ports := make(map[string][]naming.HostAddress)
		for _, address := range addresses {
			ports[address.Host] = append(ports[address.Host], address)
		}
		if len(ports) > 1 {
			conflicts = append(conflicts, m.conflict(ManyHosts, key, addresses))
		}
		for _, host := range slices.Sorted(maps.Keys(ports)) {
			if len(ports[host]) > 1 {
				conflicts = append(conflicts, m.conflict(ManyPorts, key, ports[host]))
			}
		}
	}
	slices.SortStableFunc(conflicts, func(a, b Conflict) int { return a.Key.Compare(b.Key) })
	return conflicts
}

func (m Mapping) conflict(kind ConflictKind, key naming.ServiceKey, addresses []naming.HostAddress) Conflict {
	c := Conflict{Kind: kind, Key: key, Addresses: addresses}
	for _, address := range addresses {
		c.Clients = append(c.Clients, m.Client(key, address))
	}
	return c
}
