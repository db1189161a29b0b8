package metadata

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Projection turns services into the entries that a target should hold for
// them: it selects, follows the rules for addresses, loops and attributes, and
// writes what is left in each format. It is safe for use by many goroutines.
type Projection struct {
	Select  Selection
	Reach   *naming.Reach // which addresses may be offered; nil: all
	Route   func() Route  // called for each service; nil: no loop is possible
	Rules   Rules
	Formats []Encoder
	Same    bool    // a service is written in the format that it was read in alone
	Signer  *Signer // nil: marks are not signed
}

// Entries returns the entries of a service. The error is a *registry.LeftOut
// beside them, or else they cannot be known: one format that fails leaves the
// service as it is in all of them.
func (p *Projection) Entries(s *registry.Service) ([]registry.Entry, error) {
	if err := p.Select.Refuse(s); err != nil {
		return nil, &registry.LeftOut{Reason: err, All: registry.Excluded}
	}
	out := &registry.LeftOut{}
	s, err := p.pass(s, out)
	if s == nil {
		return nil, out
	}
	var entries []registry.Entry
	left := []error{err}
	kind, _, _ := strings.Cut(string(s.Name), ":")
	for _, f := range p.Formats {
		if p.Same && f.Kind() != kind {
			continue
		}
		part, err := f.Encode(s)
		if some, ok := errors.AsType[*registry.LeftOut](err); ok {
			left = append(left, some.Reason)
		} else if err != nil {
			return nil, err //nolint:wrapcheck // the format says which part
		}
		entries = append(entries, part...)
	}
	for i := range entries {
		entries[i] = p.Signer.Sign(entries[i])
	}
	if out.Reason = errors.Join(left...); out.Reason == nil {
		return entries, nil
	}
	return entries, out
}

// pass returns what of a service reaches the formats, and why the rest does not;
// nil where nothing does.
func (p *Projection) pass(s *registry.Service, out *registry.LeftOut) (*registry.Service, error) {
	given := s
	s, refused := within(p.Reach, s)
	if refused != nil && offers(given) && !offers(s) {
		out.All = registry.Unreachable
	}
	var loops error
	if p.Route != nil {
		s, loops = p.Route().Pass(s)
	}
	if s == nil {
		out.Reason, out.All = loops, ""
		if errors.Is(loops, ErrReturns) {
			out.All = registry.Returned
		}
		return nil, loops
	}
	s, unreported := p.Rules.Apply(s)
	return s, errors.Join(refused, loops, unreported)
}

// offers reports whether a service has an endpoint for consumers.
func offers(s *registry.Service) bool {
	return slices.ContainsFunc(s.Endpoints, func(e registry.Endpoint) bool { return e.Health.Offered() })
}

// within returns a service without the endpoints that must not be offered, and
// why they are not.
func within(reach *naming.Reach, s *registry.Service) (*registry.Service, error) {
	if reach == nil {
		return s, nil
	}
	var refused []error
	kept := make([]registry.Endpoint, 0, len(s.Endpoints))
	for _, e := range s.Endpoints {
		if reason := reach.Refuse(e.Host); reason != "" {
			refused = append(refused, fmt.Errorf("endpoint %s: %s", naming.Quote(e.Address()), reason))
			continue
		}
		kept = append(kept, e)
	}
	if len(refused) == 0 {
		return s, nil
	}
	cut := *s
	cut.Endpoints = kept
	return &cut, errors.Join(refused...)
}
