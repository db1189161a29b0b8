package metadata

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An Encoder is the half of a Codec that writes.
type Encoder interface {
	// Kind is the name of the format, the Kind of its groups.
	Kind() string

	// Encode returns every entry that the format should hold for a service;
	// endpoints that are not Offered have none. The error is a *registry.LeftOut
	// beside them, one line each, where the format cannot hold all of it. Any other
	// is where a service that has interfaces and offered endpoints would come
	// out with no entry at all, so that nothing is deleted for a reason that lies
	// in the format.
	Encode(s *registry.Service) ([]registry.Entry, error)
}

// A Codec translates between services and what one format stores for them.
// It is pure: the same input gives the same bytes on every replica, inputs
// come back unchanged, outputs are in the order of Entry.Compare. An
// implementation is safe for use by many goroutines.
type Codec interface {
	Encoder

	// Dependencies names what has to be read beside the entries before they can be
	// decoded.
	Dependencies(entries []registry.Entry) []Ref

	// Decode returns the services that the entries of any number of groups
	// report, with extras being what Dependencies asked for, as far as it was found. An
	// entry that cannot be read is an error of its own and costs its neighbours nothing.
	Decode(entries, extras []registry.Entry) ([]*registry.Service, []DecodeError)
}

// Scoped is implemented by codecs that do not name services as the groups are
// named which hold their entries.
type Scoped interface {
	// Scope covers the names of all services that entries of a group may
	// report, as registry.Table.Unknown takes it.
	Scope(group registry.Group) string
}

// ScopeOf returns what covers the names of all services that entries of a group
// may report, in a format that may be Scoped.
func ScopeOf(format interface{ Kind() string }, group registry.Group) string {
	if scoped, ok := format.(Scoped); ok {
		return scoped.Scope(group)
	}
	return group.String()
}

// Ref names entries that a Codec depends on: one, or with an empty key all of a
// group.
type Ref struct {
	Group registry.Group
	Key   string
}

// DecodeError is an entry that could not be read.
type DecodeError struct {
	Entry registry.Entry
	Err   error
}

// Error says what could not be read and why.
func (f DecodeError) Error() string {
	return f.Entry.Group.String() + ": " + f.Entry.Key + ": " + f.Err.Error()
}

// Unwrap returns why the entry could not be read.
func (f DecodeError) Unwrap() error { return f.Err }

// Attributes yields the attributes of an endpoint, and those of its service beside
// them, in no order.
func Attributes(s *registry.Service, e *registry.Endpoint) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for k, v := range e.Attributes {
			if !yield(k, v) {
				return
			}
		}
		for k, v := range s.Attributes {
			if _, own := e.Attributes[k]; !own && !yield(k, v) {
				return
			}
		}
	}
}

// JSON writes strings, numbers and what is made of them as every reader takes it,
// without HTML escapes.
func JSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // such values have no other
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// AppendText writes a text as JSON does.
func AppendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return append(b, JSON(s)...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// AppendObject writes n texts by their keys as JSON does, in order.
func AppendObject(b []byte, n int, field func(i int) (key, value string)) []byte {
	b = append(b, '{')
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		k, v := field(i)
		b = AppendText(append(AppendText(b, k), ':'), v)
	}
	return append(b, '}')
}

// AppendMap writes a map as JSON does, by its keys.
func AppendMap(b []byte, m map[string]string) []byte {
	var room [32]string
	keys := slices.AppendSeq(room[:0], maps.Keys(m))
	slices.Sort(keys)
	return AppendObject(b, len(keys), func(i int) (string, string) { return keys[i], m[keys[i]] })
}

// A Replacement is how a changed entry takes the place of the one before in
// ZooKeeper. It follows who reads the format: what consumers watch, and what
// they do meanwhile.
type Replacement uint8

// The kinds of replacement.
const (
	// InPlace sets the data of the node. Consumers watch it, or ask again and
	// again.
	InPlace Replacement = iota

	// Recreated deletes the node and creates it anew, in one transaction.
	// Consumers watch the names alone, and read the data whenever these change.
	Recreated

	// Overlapping creates another node, and deletes the one before a while
	// later. Consumers know nodes by their names, and have no provider
	// between the end of one and the beginning of the other, however short.
	Overlapping
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

// maxHost is the length of the longest host name.
const maxHost = 253

// The reasons why an address or a protocol cannot be written.
var (
	errEmpty = errors.New("is empty")
	errPort  = errors.New("port 0 cannot be called")
	errHost  = errors.New("is neither an IP address nor a host name")
)

// CheckProtocol takes what can be the scheme of a URL.
func CheckProtocol(s string) error {
	if s == "" {
		return fmt.Errorf("protocol %w", errEmpty)
	}
	for i, r := range s {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || (r < '0' || r > '9') && !strings.ContainsRune("+-._", r)) {
			return fmt.Errorf("protocol %.40q: %q is not allowed", s, r)
		}
	}
	return nil
}

// CheckAddress refuses addresses that cannot be called. Which of the others
// may be offered is decided where they come from.
func CheckAddress(host string, port uint16) error {
	if port == 0 {
		return fmt.Errorf("%.80q: %w", host, errPort)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.IsUnspecified() || addr.Zone() != "" {
			return fmt.Errorf("%q cannot be called from elsewhere", host)
		}
		return nil
	}
	if host == "" || len(host) > maxHost {
		return fmt.Errorf("%.80q %w", host, errHost)
	}
	last := ""
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if !validLabel(label) {
			return fmt.Errorf("%.80q %w", host, errHost)
		}
		last = label
	}
	if strings.Trim(last, "0123456789") == "" {
		return fmt.Errorf("%.80q %w", host, errHost) // a broken IP address
	}
	return nil
}

func validLabel(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return s != "" && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-' && strings.Trim(s, allowed) == ""
}
