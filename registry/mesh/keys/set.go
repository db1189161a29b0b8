package keys

import (
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/naming"
)

// A set is keys and where each is found.
type set = map[naming.ServiceKey]naming.HostAddress

// Set makes these the keys that are shown, all of them and no others, where
// nobody else gives any; none are shown as `{}`. It copies the set and never
// blocks; of several sets in quick succession the last is announced. Before the
// first Set nothing is.
func (p *Publisher) Set(hosts map[naming.ServiceKey]naming.HostAddress) { p.SetOf("", hosts) }

// SetOf makes these the keys that one of several gives. Shown are those of all
// as one set, so that a change of any is one change. Where two give the same
// key, that of the name that comes first counts: a node can show one host of a
// key, and every replica has to show the same.
func (p *Publisher) SetOf(name string, hosts map[naming.ServiceKey]naming.HostAddress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, known := p.sets[name]; known && maps.Equal(old, hosts) {
		return
	}
	own := make(set, len(hosts))
	maps.Copy(own, hosts)
	p.sets[name] = own
	p.unite()
}

// Only forgets what all but these gave.
func (p *Publisher) Only(names ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.sets)
	maps.DeleteFunc(p.sets, func(name string, _ set) bool { return !slices.Contains(names, name) })
	if len(p.sets) < before {
		p.unite()
	}
}

// unite makes one set of all. The caller holds mu.
func (p *Publisher) unite() {
	all := make(set)
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(p.sets))) {
		maps.Copy(all, p.sets[name])
	}
	if p.wanted != nil && maps.Equal(p.wanted, all) {
		return
	}
	p.wanted = all
	p.wake()
}
