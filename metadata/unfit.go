package metadata

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Unfit says why consumers of a format cannot or must not be notified of an
// endpoint, or of a key of its metadata. It is left out like one that is not
// offered: that is no failure of the format, and keeps nothing else from being
// written or withdrawn.
type Unfit struct{ Reason string }

// Error returns the reason.
func (u *Unfit) Error() string { return u.Reason }

// Tagged returns why an endpoint with a tag is left out where tags are not
// carried: without it consumers that ask for none would call what is hidden
// from them.
func Tagged(tag string) error {
	return &Unfit{"has tag " + naming.Quote(tag) + ", which hides it from consumers without one; the format carries it with tags: true"}
}

// Fails reports whether a reason is none of Unfit.
func Fails(reasons []error) bool {
	return slices.ContainsFunc(reasons, func(err error) bool {
		_, unfit := errors.AsType[*Unfit](err)
		return err != nil && !unfit
	})
}

// Encoded returns what an Encoder does that wrote these entries of a service,
// and left that out.
func Encoded(s *registry.Service, entries []registry.Entry, left []error) ([]registry.Entry, error) {
	reason := errors.Join(left...)
	switch {
	case reason == nil:
		return entries, nil
	case len(entries) == 0 && Fails(left):
		return nil, fmt.Errorf("%s: %w", s.Name, reason)
	}
	return entries, &registry.LeftOut{Reason: reason}
}

// Reserved counts, by key, the endpoints of a service whose metadata has a key
// that the consumers of a format read something else into.
type Reserved map[string]int

// Note says what is left out for that, nil where nothing is.
func (r Reserved) Note(format string) error {
	if len(r) == 0 {
		return nil
	}
	keys := slices.Sorted(maps.Keys(r))
	most := slices.Max(slices.Collect(maps.Values(r)))
	return &Unfit{fmt.Sprintf("metadata %.200q left out of %s: consumers of %s read something else into it; metadata.rename can keep it",
		strings.Join(keys, ", "), endpoints(most), format)}
}

// PathNote says that the paths at which endpoints of a service are called are
// left out where there is no place for them, nil where there are none.
func PathNote(s *registry.Service, where string) error {
	n, example := 0, ""
	for _, e := range s.Endpoints {
		if e.Health.Offered() && e.URLPath != "" {
			n, example = n+1, e.URLPath
		}
	}
	if n == 0 {
		return nil
	}
	return &Unfit{fmt.Sprintf("path left out of %s, such as %s: %s has no place for it, and consumers have to know it", endpoints(n), naming.Quote(example), where)}
}

func endpoints(n int) string {
	if n == 1 {
		return "1 endpoint"
	}
	return fmt.Sprintf("%d endpoints", n)
}

// WeightNote says that the weights of so many endpoints are left out, nil where
// it is none.
func WeightNote(n int, format string) error {
	if n == 0 {
		return nil
	}
	return &Unfit{fmt.Sprintf("weight left out of %s: consumers of %s know none in this registry", endpoints(n), format)}
}
