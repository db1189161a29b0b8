package metadata

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Route is the way from one registry into another, each named by its hop. It is
// what ends loops of any length.
type Route struct {
	From string // appended to the path of what takes this way; empty: nothing is
	To   string // what already passed it goes no further; empty: everything may
}

// ErrReturns says that something came from the registry that it would go to,
// which therefore has it.
var ErrReturns = errors.New("loop: it came from there")

// Pass returns a service as it leaves on this way: its path and those of its
// endpoints have grown by one hop. Endpoints that came from the registry they
// would go to are left out, and so are those whose path has no room for
// another hop, which is taken for a loop. Where nothing of a service may pass
// there is none; one that is known without endpoints passes as it is. The error
// says what is left out.
func (r Route) Pass(s *registry.Service) (*registry.Service, error) {
	if len(s.Endpoints) == 0 {
		if err := r.refuse(s.Path); err != nil {
			return nil, err
		}
	}
	var left []error
	kept := make([]registry.Endpoint, 0, len(s.Endpoints))
	for _, e := range s.Endpoints {
		path := cmp.Or(e.Path, s.Path)
		if err := r.refuse(path); err != nil {
			left = append(left, fmt.Errorf("endpoint %s: %w", naming.Quote(e.Address()), err))
			continue
		}
		e.Path = path + registry.Path(r.From)
		kept = append(kept, e)
	}
	if len(kept) == 0 && len(left) > 0 {
		return nil, errors.Join(left...)
	}
	passed := *s
	passed.Endpoints = kept
	if r.refuse(s.Path) == nil {
		passed.Path = s.Path + registry.Path(r.From)
	}
	return &passed, errors.Join(left...)
}

// refuse returns why what came by a path may not take this way.
func (r Route) refuse(p registry.Path) error {
	switch {
	case r.To != "" && p.Has(r.To):
		return ErrReturns
	case p.Hops() >= MaxHops:
		return fmt.Errorf("loop: it passed %d registries, and no entry passes more", p.Hops())
	}
	return nil
}
