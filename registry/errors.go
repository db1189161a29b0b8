package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Refused is the error of a Write that refuses a part of its change: the reason
// by key. It wraps ErrRefused.
type Refused map[string]error

// Has reports whether a key is refused.
func (r Refused) Has(key string) bool { return r[key] != nil }

// Err returns the keys as an error, nil where there are none.
func (r Refused) Err() error {
	if len(r) == 0 {
		return nil
	}
	return r
}

// Error returns a few of the reasons, each with the first of its keys.
func (r Refused) Error() string {
	const most = 3
	keys := make(map[string][]string) // by reason
	var reasons []string
	for _, key := range slices.Sorted(maps.Keys(r)) {
		reason := strings.TrimPrefix(r[key].Error(), ErrRefused.Error()+": ")
		if keys[reason] == nil {
			reasons = append(reasons, reason)
		}
		keys[reason] = append(keys[reason], key)
	}
	var parts []string
	for _, reason := range reasons[:min(most, len(reasons))] {
		part := fmt.Sprintf("%.200q", keys[reason][0])
		if more := len(keys[reason]) - 1; more > 0 {
			part += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, part+": "+reason)
	}
	if more := len(reasons) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("%d other reasons", more))
	}
	return ErrRefused.Error() + ": " + strings.Join(parts, "; ")
}

// Unwrap returns the reasons and ErrRefused.
func (r Refused) Unwrap() []error { return append(slices.Collect(maps.Values(r)), ErrRefused) }

// LeftOut is the error beside the entries of a service that says which parts of
// it have none, and why. It is no failure: what it does not name is written.
type LeftOut struct {
	Reason error
	All    Absence // why none of it is written; empty: only the entries say it
}

// Absence says why nothing of a service is written, in a word of its status.
type Absence string

// The reasons that lie in the way and not in what the service has.
const (
	Excluded    Absence = "excluded" // it is not selected
	Returned    Absence = "synced"   // it came from there, where it still is
	Unreachable Absence = "invalid"  // none of its addresses may be offered
)

// Error returns the reason.
func (l *LeftOut) Error() string {
	if l.All == Excluded {
		return l.Reason.Error()
	}
	return "left out: " + l.Reason.Error()
}

// Unwrap returns the reason.
func (l *LeftOut) Unwrap() error { return l.Reason }
