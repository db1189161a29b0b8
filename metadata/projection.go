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
// them: it selects services, applies the rules for addresses, loops and attributes,
// and encodes in each format. It is safe for use by many goroutines.
type Projection struct {
	Select  Selection
	Reach   *naming.Reach // which addresses may be offered; nil: all
	Route   func() Route  // called for each service; nil: no loop is possible
	Rules   Rules
	Formats []Encoder
	Places  []registry.Place // by format, where the services lie that it is written for; none: each is for all
	Signer  *Signer          // nil: marks are not signed
}

// Entries returns the entries of a service. The error is a *registry.LeftOut beside
// them, which says what has none. What one format cannot hold, others may.
func (p *Projection) Entries(s *registry.Service) ([]registry.Entry, error) {
	if err := p.Select.Refuse(s); err != nil {
		return nil, &registry.LeftOut{Reason: err, All: registry.Skipped}
	}
	out := &registry.LeftOut{}
	s, err := p.pass(s, out)
	if s == nil {
		return nil, out
	}
	var entries []registry.Entry
	left := []error{err}
	for i, f := range p.Formats {
		if len(p.Places) > 0 && !p.Places[i].Has(s.Name) {
			continue
		}
		part, err := encode(f, s)
		if some := registry.LeftOutBy(err); some != nil {
			left, out.All = append(left, some.Reason), cmp.Or(out.All, some.All)
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

// encode returns the entries of a service, whose endpoints may differ in what they
// provide.
func encode(f Encoder, s *registry.Service) ([]registry.Entry, error) {
	parts := s.ByInterfaces()
	if len(parts) == 1 {
		return f.Encode(parts[0])
	}
	var entries []registry.Entry
	var left []error
	out := &registry.LeftOut{}
	for _, part := range parts {
		encoded, err := f.Encode(part)
		if some := registry.LeftOutBy(err); some != nil {
			left, out.All = append(left, some.Reason), cmp.Or(out.All, some.All)
		}
		entries = append(entries, encoded...)
	}
	if out.Reason = errors.Join(left...); out.Reason == nil {
		return union(entries), nil
	}
	if slices.ContainsFunc(entries, func(e registry.Entry) bool { return registry.IsEndpoint(e.Key) }) {
		out.All = ""
	}
	return union(entries), out
}

// union returns entries sorted, each key once: parts of a service share heads.
func union(entries []registry.Entry) []registry.Entry {
	return slices.CompactFunc(registry.Sorted(entries), func(a, b registry.Entry) bool { return a.Group == b.Group && a.Key == b.Key })
}

// pass returns the part of a service that the formats encode, and why they do not
// encode the rest; nil if there is no such part.
func (p *Projection) pass(s *registry.Service, out *registry.LeftOut) (*registry.Service, error) {
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
	given := s
	s, refused := within(p.Reach, s)
	if refused != nil && offers(given) && !offers(s) {
		out.All = registry.Unwritable
	}
	s, unreported := p.Rules.Apply(s)
	return s, errors.Join(refused, loops, unreported)
}

// offers reports whether a service has an endpoint that may be offered.
func offers(s *registry.Service) bool {
	return slices.ContainsFunc(s.Endpoints, func(e registry.Endpoint) bool { return e.Health.Offered() })
}

// within returns a service whose endpoints out of reach are disabled, and why each is.
// They stay endpoints of it, because on what they provide and on their protocol the
// name of its host in a mesh depends.
func within(reach *naming.Reach, s *registry.Service) (*registry.Service, error) {
	if reach == nil {
		return s, nil
	}
	var refused []error
	marked := *s
	for i, e := range s.Endpoints {
		reason := reach.Refuse(e.Host)
		if reason == "" {
			continue
		}
		if refused == nil {
			marked.Endpoints = slices.Clone(s.Endpoints)
		}
		marked.Endpoints[i].Health = registry.Disabled
		refused = append(refused, fmt.Errorf("endpoint %s: %s", naming.Quote(e.Address()), reason))
	}
	if refused == nil {
		return s, nil
	}
	return &marked, errors.Join(refused...)
}

// A Selection says which services are selected. The zero Selection selects all.
type Selection struct {
	Include  []naming.Pattern // none: all
	Exclude  []naming.Pattern
	Imported []naming.Pattern // hosts from other registries, selected only if Include names them
}

var errNotIncluded = errors.New("no pattern of select.include fits its host, or its interface or native name")

// Refuse returns why a service is not selected, nil if it is.
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

// names reports whether a pattern other than * includes a service.
func (s Selection) names(sv *registry.Service) bool {
	return slices.ContainsFunc(s.Include, func(p naming.Pattern) bool { return p.String() != "*" && Matches(p, sv) })
}

// Matches reports whether a pattern fits the host of a service of a mesh. For any
// other service it fits the name, its last part or the name of an interface.
func Matches(p naming.Pattern, sv *registry.Service) bool {
	name := string(sv.Name)
	if fits, host := MatchesHost(p, name); host {
		return fits
	}
	return p.Match(name) || p.Match(name[strings.LastIndexByte(name, '/')+1:]) ||
		slices.ContainsFunc(sv.Interfaces, func(i registry.Interface) bool { return p.Match(i.Name) })
}

// MatchesHost reports whether a name is a host address of a mesh, and whether a
// pattern fits the host or the whole address.
func MatchesHost(p naming.Pattern, name string) (fits, host bool) {
	address, err := naming.ParseHostAddress(name)
	return err == nil && (p.MatchHost(address.Host) || p.MatchHost(name)), err == nil
}

// Route goes from one registry to another, each named by its hop. It ends loops
// of any length.
type Route struct {
	From string // appended to each path; empty: nothing is
	To   string // nothing passes that has it in its path; empty: all passes
}

// ErrReturns says that something came from the registry that it would go to,
// which therefore has it.
var ErrReturns = errors.New("loop: it came from there")

// Pass returns a service with one more hop in its path and in those of its
// endpoints. Left out are endpoints that came from the target registry, and those
// whose path has no room for another hop, which counts as a loop. The error says
// which. The service is nil if it had endpoints and all are left out.
func (r Route) Pass(s *registry.Service) (*registry.Service, error) {
	if len(s.Endpoints) == 0 {
		if err := r.refuse(s.Path); err != nil {
			return nil, err
		}
	}
	var left []error
	var from, to registry.Path // of the previous endpoint: most have one path
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

// refuse returns why nothing with a path may pass.
func (r Route) refuse(p registry.Path) error {
	switch {
	case r.To != "" && p.Has(r.To):
		return ErrReturns
	case p.Hops() >= MaxHops:
		return fmt.Errorf("loop: it passed %d registries, and no entry passes more", p.Hops())
	}
	return nil
}

// Rules filter, rename, change and add attributes of services. They apply in the
// order of their fields. The zero Rules change nothing.
type Rules struct {
	Keep   []string          // patterns of keys, with at most one *; none: all
	Drop   []string          // patterns of keys
	Rename map[string]string // an attribute whose new key exists already is left out
	Values []ValueRule       // the first that fits applies; their keys are the new ones
	Add    map[string]string // replace the service's own values
}

// ValueRule replaces one value of a key.
type ValueRule struct {
	Key, From, To string // To is empty: the attribute is left out
}

// fixed reports whether a key is one that rules cannot change: codecs read from it
// the owner of an entry, or the unit of weights.
func fixed(key string) bool { return key == MarkKey || key == "meshHostAddr" || key == "" }

// Check returns what is wrong with the rules.
func (r Rules) Check() error {
	var problems []error
	for _, p := range slices.Concat(r.Keep, r.Drop) {
		if p == "" || strings.Count(p, "*") > 1 {
			problems = append(problems, fmt.Errorf("%q is no pattern of keys: want a text with at most one *", p))
		}
	}
	changed := slices.Concat(slices.Collect(maps.Keys(r.Rename)), slices.Collect(maps.Values(r.Rename)), slices.Collect(maps.Keys(r.Add)))
	for _, v := range r.Values {
		changed = append(changed, v.Key)
	}
	slices.Sort(changed)
	for _, key := range changed {
		switch {
		case key == "":
			problems = append(problems, errors.New("a key of rename, values or add is empty"))
		case fixed(key):
			problems = append(problems, fmt.Errorf("%q is written by the bridge itself; remove it from rename, values and add", key))
		}
	}
	return errors.Join(problems...)
}

// Apply returns a service with its attributes changed. The error says which were
// not renamed and so left out.
func (r Rules) Apply(s *registry.Service) (*registry.Service, error) {
	if len(r.Keep)+len(r.Drop)+len(r.Rename)+len(r.Values)+len(r.Add) == 0 {
		return s, nil
	}
	out := *s
	renamed := slices.Sorted(maps.Keys(r.Rename))
	var left, more []error
	out.Attributes, left = r.attributes(s.Attributes, renamed)
	out.Endpoints = slices.Clone(s.Endpoints)
	var before registry.Attributes // of the previous endpoint: most have equal ones
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
		value, exists := in[key]
		if !exists || !r.passes(key) {
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

// passes reports whether Keep and Drop let a key pass.
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

// put adds an attribute with its value changed by the rules.
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
