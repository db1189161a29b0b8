package metadata

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

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
	var left []error
	out.Attributes, left = r.attributes(s.Attributes)
	out.Endpoints = slices.Clone(s.Endpoints)
	for i := range out.Endpoints {
		if a := out.Endpoints[i].Attributes; len(a) > 0 {
			var more []error
			out.Endpoints[i].Attributes, more = r.attributes(a)
			left = append(left, more...)
		}
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

func (r Rules) attributes(in registry.Attributes) (out registry.Attributes, left []error) {
	if len(in) == 0 {
		return nil, nil
	}
	out = make(registry.Attributes, len(in))
	for key, value := range in {
		if _, renamed := r.Rename[key]; !renamed && r.passes(key) {
			r.put(out, key, value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.Rename)) {
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
