package metadata

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Trace makes the marks of the entries that one bridge writes.
type Trace struct {
	Mark   Mark   // whose the entries are; its path is not used. Without an owner there is no mark
	Hop    string // of the registry the services come from, appended to their paths; may be empty
	Target string // hop of the registry written to: what already passed it is left out; may be empty
}

// Check names the hop that cannot be one.
func (t Trace) Check() error {
	var faults []error
	for _, hop := range [][2]string{{"hop", t.Hop}, {"target", t.Target}} {
		if hop[1] != "" && len(hop[1]) != registry.HopLen {
			faults = append(faults, fmt.Errorf("%s: %q is not %d characters long", hop[0], hop[1], registry.HopLen))
		}
	}
	return errors.Join(faults...)
}

// Of returns the mark of an endpoint, which adds the hop of its source to the
// path it came.
func (t Trace) Of(s *registry.Service, e *registry.Endpoint) (string, error) {
	if t.Mark.Owner == "" {
		return "", nil
	}
	m := t.Mark
	m.Path = cmp.Or(e.Path, s.Path)
	if t.Target != "" && m.Path.Has(t.Target) {
		return "", errors.New("came from this registry; writing it back would be a loop")
	}
	m.Path += registry.Path(t.Hop)
	if m.Path.Hops() > MaxHops {
		return "", fmt.Errorf("passed %d registries, at most %d", m.Path.Hops(), MaxHops)
	}
	return m.String(), nil
}
