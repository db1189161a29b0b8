package metadata

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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
		if len(entries) == 0 {
			entries = part
		} else {
			entries = append(entries, part...)
		}
	}
	for i := range entries {
		if p.Signer != nil {
			entries[i] = p.Signer.Sign(entries[i])
		}
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
	cut := *s
	for i, e := range s.Endpoints {
		if reason := reach.Refuse(e.Host); reason != "" {
			if refused == nil {
				cut.Endpoints = slices.Clone(s.Endpoints[:i])
			}
			refused = append(refused, fmt.Errorf("endpoint %s: %s", naming.Quote(e.Address()), reason))
		} else if refused != nil {
			cut.Endpoints = append(cut.Endpoints, e)
		}
	}
	if refused == nil {
		return s, nil
	}
	return &cut, errors.Join(refused...)
}

// A Selection says which services are taken. The zero Selection takes all.
type Selection struct {
	Include  []naming.Pattern // none: all
	Exclude  []naming.Pattern
	Imported []naming.Pattern // hosts that came out of other registries: only what Include names of them
}

var errNotIncluded = errors.New("no pattern of select.include fits its host, or its interface or native name")

// Refuse says why a service is not taken, nil where it is.
func (s Selection) Refuse(sv *registry.Service) error {
	for _, p := range s.Imported {
		if Matches(p, sv) && !s.names(sv) {
			return fmt.Errorf("it was imported: its host is under %q; name it in select.include to export it all the same", p)
		}
	}
	for _, p := range s.Exclude {
		if Matches(p, sv) {
			return fmt.Errorf("select.exclude names it by %q", p)
		}
	}
	if len(s.Include) == 0 || slices.ContainsFunc(s.Include, func(p naming.Pattern) bool { return Matches(p, sv) }) {
		return nil
	}
	return errNotIncluded
}

// names reports whether a pattern that is more than a star names a service.
func (s Selection) names(sv *registry.Service) bool {
	return slices.ContainsFunc(s.Include, func(p naming.Pattern) bool { return p.String() != "*" && Matches(p, sv) })
}

// Matches reports whether a pattern fits the host of a service of a mesh; of
// any other its native name, with what says where it is stored or without, or
// an interface that it provides.
func Matches(p naming.Pattern, sv *registry.Service) bool {
	name := string(sv.Name)
	if fits, host := MatchesHost(p, name); host {
		return fits
	}
	return p.Match(name) || p.Match(name[strings.LastIndexByte(name, '/')+1:]) ||
		slices.ContainsFunc(sv.Interfaces, func(i registry.Interface) bool { return p.Match(i.Name) })
}

// MatchesHost reports whether a name is the address of a host of a mesh, and
// whether a pattern fits the host or all of it.
func MatchesHost(p naming.Pattern, name string) (fits, host bool) {
	address, err := naming.ParseHostAddress(name)
	return err == nil && (p.MatchHost(address.Host) || p.MatchHost(name)), err == nil
}

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
	var from, to registry.Path // of the endpoint before: most came by one path
	kept := make([]registry.Endpoint, 0, len(s.Endpoints))
	for _, e := range s.Endpoints {
		path := cmp.Or(e.Path, s.Path)
		if err := r.refuse(path); err != nil {
			left = append(left, fmt.Errorf("endpoint %s: %w", naming.Quote(e.Address()), err))
			continue
		}
		if to == "" || path != from {
			from, to = path, path+registry.Path(r.From)
		}
		e.Path = to
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

// Rules say what of the attributes of services passes a bridge, and under
// which keys. They are followed in the order of their fields. The zero Rules
// let all pass.
type Rules struct {
	Keep   []string          // patterns of keys, with at most one *; none: all
	Drop   []string          // patterns of keys
	Rename map[string]string // a key that is there already stays, and what would take its place is left out
	Values []ValueRule       // the first that fits counts; they know keys by their new names
	Add    map[string]string // in place of what a service says itself
}

// ValueRule puts one value of a key in the place of another.
type ValueRule struct {
	Key, From, To string // To is empty: the key is left out
}

// fixed are the keys that rules cannot touch: codecs see by them whose an
// entry is and which registry weights are of.
func fixed(key string) bool { return key == MarkKey || key == "meshHostAddr" || key == "" }

// Check returns what cannot be followed.
func (r Rules) Check() error {
	var problems []error
	for _, p := range slices.Concat(r.Keep, r.Drop) {
		if p == "" || strings.Count(p, "*") > 1 {
			problems = append(problems, fmt.Errorf("%q is no pattern of keys: it needs a text with at most one *", p))
		}
	}
	touched := slices.Concat(slices.Collect(maps.Keys(r.Rename)), slices.Collect(maps.Values(r.Rename)), slices.Collect(maps.Keys(r.Add)))
	for _, v := range r.Values {
		touched = append(touched, v.Key)
	}
	slices.Sort(touched)
	for _, key := range touched {
		if fixed(key) {
			problems = append(problems, fmt.Errorf("%q is written by the bridge itself; take it out", key))
		}
	}
	return errors.Join(problems...)
}

// Apply returns a service with the attributes that pass, itself where the
// rules change nothing, and why some are left out that no rule drops.
func (r Rules) Apply(s *registry.Service) (*registry.Service, error) {
	if len(r.Keep)+len(r.Drop)+len(r.Rename)+len(r.Values)+len(r.Add) == 0 {
		return s, nil
	}
	out := *s
	renamed := slices.Sorted(maps.Keys(r.Rename))
	var left, more []error
	out.Attributes, left = r.attributes(s.Attributes, renamed)
	out.Endpoints = slices.Clone(s.Endpoints)
	var before registry.Attributes // of the endpoint before, which this one may share
	for i := range out.Endpoints {
		e := &out.Endpoints[i]
		if a := e.Attributes; i > 0 && maps.Equal(a, before) {
			e.Attributes = out.Endpoints[i-1].Attributes
		} else {
			before = a
			e.Attributes, more = r.attributes(a, renamed)
		}
		left = append(left, more...)
	}
	for key, value := range r.Add {
		if out.Attributes == nil {
			out.Attributes = make(registry.Attributes)
		}
		out.Attributes[key] = value
		for i := range out.Endpoints {
			if _, own := out.Endpoints[i].Attributes[key]; own {
				out.Endpoints[i].Attributes[key] = value
			}
		}
	}
	return &out, errors.Join(left...)
}

func (r Rules) attributes(in registry.Attributes, renamed []string) (out registry.Attributes, left []error) {
	if len(in) == 0 {
		return nil, nil
	}
	out = make(registry.Attributes, len(in))
	for key, value := range in {
		if _, renamed := r.Rename[key]; !renamed && r.passes(key) {
			r.put(out, key, value)
		}
	}
	for _, key := range renamed {
		value, there := in[key]
		if !there || !r.passes(key) {
			continue
		}
		to := r.Rename[key]
		if _, exists := out[to]; exists {
			left = append(left, fmt.Errorf("attribute %q is not renamed to %q, which is there already", key, to))
			continue
		}
		r.put(out, to, value)
	}
	return out, left
}

// passes reports whether a key does by Keep and Drop.
func (r Rules) passes(key string) bool {
	if fixed(key) {
		return true
	}
	fits := func(pattern string) bool {
		before, after, star := strings.Cut(pattern, "*")
		if !star {
			return key == pattern
		}
		return len(key) >= len(before)+len(after) && strings.HasPrefix(key, before) && strings.HasSuffix(key, after)
	}
	return (len(r.Keep) == 0 || slices.ContainsFunc(r.Keep, fits)) && !slices.ContainsFunc(r.Drop, fits)
}

// put adds a key with the value that the rules make of its own.
func (r Rules) put(out registry.Attributes, key, value string) {
	for _, v := range r.Values {
		if v.Key == key && v.From == value {
			if v.To == "" {
				return
			}
			value = v.To
			break
		}
	}
	out[key] = value
}
