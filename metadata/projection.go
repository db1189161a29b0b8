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

// A Projection turns services into their desired entries in a target. It selects
// services, applies the rules for addresses, loops and attributes, and encodes the
// result in each format. It is safe for concurrent use.
type Projection struct {
	Select  Selection
	Reach   *naming.Reach // the addresses that may be offered; nil for all
	Route   func() Route  // called for each service; nil if loops are impossible
	Rules   Rules
	Formats []Encoder
	Places  []registry.Place // for each format the place of its services; empty: each format is for all services
	Signer  *Signer          // nil if marks are not signed
}

// Entries returns the entries of a service. With a *registry.LeftOut as its error the
// entries are still valid: it names the parts without an entry. A part that one format
// cannot hold may be in the entries of another.
func (p *Projection) Entries(s *registry.Service) ([]registry.Entry, error) {
	if err := p.Select.Refuse(s); err != nil {
		return nil, &registry.LeftOut{Reason: err, All: registry.Skipped}
	}
	out := &registry.LeftOut{}
	s, err := p.prepare(s, out)
	if s == nil {
		return nil, out
	}
	var entries []registry.Entry
	omissions := []error{err}
	for i, f := range p.Formats {
		if len(p.Places) > 0 && !p.Places[i].Has(s.Name) {
			continue
		}
		part, err := encode(f, s)
		if some := registry.LeftOutBy(err); some != nil {
			omissions, out.All = append(omissions, some.Reason), cmp.Or(out.All, some.All)
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
	if out.Reason = errors.Join(omissions...); out.Reason == nil {
		return entries, nil
	}
	return entries, out
}

// encode returns the entries of a service, whose endpoints may provide different
// interfaces.
func encode(f Encoder, s *registry.Service) ([]registry.Entry, error) {
	parts := s.ByInterfaces()
	if len(parts) == 1 {
		return f.Encode(parts[0])
	}
	var entries []registry.Entry
	var omissions []error
	out := &registry.LeftOut{}
	for _, part := range parts {
		encoded, err := f.Encode(part)
		if some := registry.LeftOutBy(err); some != nil {
			omissions, out.All = append(omissions, some.Reason), cmp.Or(out.All, some.All)
		}
		entries = append(entries, encoded...)
	}
	if out.Reason = errors.Join(omissions...); out.Reason == nil {
		return union(entries), nil
	}
	if slices.ContainsFunc(entries, func(e registry.Entry) bool { return registry.IsEndpoint(e.Key) }) {
		out.All = ""
	}
	return union(entries), out
}

// union returns sorted entries with each key once: the parts of a service share heads.
func union(entries []registry.Entry) []registry.Entry {
	return slices.CompactFunc(registry.Sorted(entries), func(a, b registry.Entry) bool {
		return a.Group == b.Group && a.Key == b.Key
	})
}

// prepare returns the part of a service that is to be encoded, and why other parts are
// not. The service is nil if there is no such part.
func (p *Projection) prepare(s *registry.Service, out *registry.LeftOut) (*registry.Service, error) {
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
	before := s
	s, refused := disableOutOfReach(p.Reach, s)
	if refused != nil && offers(before) && !offers(s) {
		out.All = registry.Unwritable
	}
	s, notRenamed := p.Rules.Apply(s)
	return s, errors.Join(refused, loops, notRenamed)
}

// offers reports whether a service has an endpoint that may be offered.
func offers(s *registry.Service) bool {
	return slices.ContainsFunc(s.Endpoints, func(e registry.Endpoint) bool { return e.Health.Offered() })
}

// disableOutOfReach returns a service whose endpoints out of reach are disabled, and why
// each of them is. They remain endpoints of the service, because the name of its host in
// a mesh depends on their interfaces and protocol.
func disableOutOfReach(reach *naming.Reach, s *registry.Service) (*registry.Service, error) {
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
	Include  []naming.Pattern // empty: all
	Exclude  []naming.Pattern
	Imported []naming.Pattern // hosts from other registries, which are selected only if Include names them
}

var errNotIncluded = errors.New("no pattern of select.include matches its host, or its interface or native name")

// Refuse returns why a service is not selected, or nil if it is.
func (s Selection) Refuse(sv *registry.Service) error {
	for _, p := range s.Imported {
		if Matches(p, sv) && !s.names(sv) {
			return fmt.Errorf("it was imported: its host matches %q; name it in select.include to export it nevertheless", p)
		}
	}
	for _, p := range s.Exclude {
		if Matches(p, sv) {
			return fmt.Errorf("select.exclude matches it by %q", p)
		}
	}
	if len(s.Include) == 0 || slices.ContainsFunc(s.Include, func(p naming.Pattern) bool { return Matches(p, sv) }) {
		return nil
	}
	return errNotIncluded
}

// names reports whether a pattern of Include other than * matches a service.
func (s Selection) names(sv *registry.Service) bool {
	return slices.ContainsFunc(s.Include, func(p naming.Pattern) bool { return p.String() != "*" && Matches(p, sv) })
}

// Matches reports whether a pattern matches the host of a mesh service. For any other
// service it reports whether the pattern matches the name, its last part or the name of
// an interface.
func Matches(p naming.Pattern, sv *registry.Service) bool {
	name := string(sv.Name)
	if matches, isHost := MatchesHost(p, name); isHost {
		return matches
	}
	return p.Match(name) || p.Match(name[strings.LastIndexByte(name, '/')+1:]) ||
		slices.ContainsFunc(sv.Interfaces, func(i registry.Interface) bool { return p.Match(i.Name) })
}

// MatchesHost reports whether a name is a host address of a mesh, and whether a pattern
// matches the host or the whole address.
func MatchesHost(p naming.Pattern, name string) (matches, isHost bool) {
	address, err := naming.ParseHostAddress(name)
	return err == nil && (p.MatchHost(address.Host) || p.MatchHost(name)), err == nil
}

// Route leads from one registry to another, each named by its hop. It prevents loops of
// any length.
type Route struct {
	From string // appended to each path, unless it is empty
	To   string // refused in each path, unless it is empty
}

// ErrReturns is the error of a service or endpoint that came from the target registry,
// which therefore still has it.
var ErrReturns = errors.New("loop: it came from the target registry")

// Pass returns a service with one more hop in its path and in those of its endpoints. It
// leaves out endpoints that came from the target registry, and those that passed
// MaxHops registries, which counts as a loop. The error names them. The service is nil
// if it had endpoints and all are left out.
func (r Route) Pass(s *registry.Service) (*registry.Service, error) {
	if len(s.Endpoints) == 0 {
		if err := r.refuse(s.Path); err != nil {
			return nil, err
		}
	}
	var omissions []error
	var from, to registry.Path // of the previous endpoint: most endpoints have the same path
	kept := make([]registry.Endpoint, 0, len(s.Endpoints))
	for _, e := range s.Endpoints {
		path := cmp.Or(e.Path, s.Path)
		if err := r.refuse(path); err != nil {
			omissions = append(omissions, fmt.Errorf("endpoint %s: %w", naming.Quote(e.Address()), err))
			continue
		}
		if to == "" || path != from {
			from, to = path, path+registry.Path(r.From)
		}
		e.Path = to
		kept = append(kept, e)
	}
	if len(kept) == 0 && len(omissions) > 0 {
		return nil, errors.Join(omissions...)
	}
	passed := *s
	passed.Endpoints = kept
	if r.refuse(s.Path) == nil {
		passed.Path = s.Path + registry.Path(r.From)
	}
	return &passed, errors.Join(omissions...)
}

// refuse returns why services and endpoints with a path may not pass, or nil if they may.
func (r Route) refuse(p registry.Path) error {
	switch {
	case r.To != "" && p.Has(r.To):
		return ErrReturns
	case p.Hops() >= MaxHops:
		return fmt.Errorf("loop: it passed %d registries already, which is the maximum", p.Hops())
	}
	return nil
}

// Rules filter, rename, change and add attributes of services. They apply in the order
// of their fields. The zero Rules change nothing.
type Rules struct {
	Keep   []string          // patterns of keys, with at most one *; empty: all
	Drop   []string          // patterns of keys
	Rename map[string]string // an attribute whose new key already exists is left out
	Values []ValueRule       // for each attribute the first that matches, by the new key
	Add    map[string]string // replaces the service's own values
}

// ValueRule replaces one value of a key. With an empty To the attribute is left out.
type ValueRule struct {
	Key, From, To string
}

// isFixed reports whether rules cannot change a key, because codecs determine the owner
// of an entry or the unit of weights by it.
func isFixed(key string) bool { return key == MarkKey || key == "meshHostAddr" || key == "" }

// Check returns the errors of the rules.
func (r Rules) Check() error {
	var problems []error
	for _, p := range slices.Concat(r.Keep, r.Drop) {
		if p == "" || strings.Count(p, "*") > 1 {
			problems = append(problems, fmt.Errorf("a pattern of keys must be a text with at most one * (got %q)", p))
		}
	}
	changed := slices.Concat(slices.Collect(maps.Keys(r.Rename)), slices.Collect(maps.Values(r.Rename)),
		slices.Collect(maps.Keys(r.Add)))
	for _, v := range r.Values {
		changed = append(changed, v.Key)
	}
	slices.Sort(changed)
	for _, key := range changed {
		switch {
		case key == "":
			problems = append(problems, errors.New("a key of rename, values or add is empty"))
		case isFixed(key):
			problems = append(problems, fmt.Errorf("the bridge itself writes %q; remove it from rename, values and add", key))
		}
	}
	return errors.Join(problems...)
}

// Apply returns a service with changed attributes. The error names attributes that could
// not be renamed and are left out.
func (r Rules) Apply(s *registry.Service) (*registry.Service, error) {
	if len(r.Keep)+len(r.Drop)+len(r.Rename)+len(r.Values)+len(r.Add) == 0 {
		return s, nil
	}
	out := *s
	renamed := slices.Sorted(maps.Keys(r.Rename))
	var omissions, more []error
	out.Attributes, omissions = r.attributes(s.Attributes, renamed)
	out.Endpoints = slices.Clone(s.Endpoints)
	var before registry.Attributes // of the previous endpoint: most endpoints have equal ones
	for i := range out.Endpoints {
		e := &out.Endpoints[i]
		if a := e.Attributes; i > 0 && maps.Equal(a, before) {
			e.Attributes = out.Endpoints[i-1].Attributes
		} else {
			before = a
			e.Attributes, more = r.attributes(a, renamed)
		}
		omissions = append(omissions, more...)
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
	return &out, errors.Join(omissions...)
}

func (r Rules) attributes(in registry.Attributes, renamed []string) (out registry.Attributes, omissions []error) {
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
			omissions = append(omissions, fmt.Errorf("attribute %q is not renamed to %q, which already exists", key, to))
			continue
		}
		r.put(out, to, value)
	}
	return out, omissions
}

// passes reports whether Keep and Drop let a key pass.
func (r Rules) passes(key string) bool {
	if isFixed(key) {
		return true
	}
	matches := func(pattern string) bool {
		before, after, star := strings.Cut(pattern, "*")
		if !star {
			return key == pattern
		}
		return len(key) >= len(before)+len(after) && strings.HasPrefix(key, before) && strings.HasSuffix(key, after)
	}
	return (len(r.Keep) == 0 || slices.ContainsFunc(r.Keep, matches)) && !slices.ContainsFunc(r.Drop, matches)
}

// put adds an attribute, with its value changed by the rules.
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
