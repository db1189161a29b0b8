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

// An Encoder encodes services in one format.
type Encoder interface {
	// Kind returns the name of the format, which is the Kind of its groups.
	Kind() string

	// Encode returns the entries of a service. Endpoints that are not Offered have no
	// entries. With a *registry.LeftOut as its error the entries are still valid: it
	// names the parts that the format cannot hold, one per line.
	Encode(s *registry.Service) ([]registry.Entry, error)
}

// A Codec encodes and decodes services in one format. It is pure: equal inputs give
// equal bytes on every replica, inputs are not changed, and entries are in the order of
// Entry.Compare. It is safe for concurrent use.
type Codec interface {
	Encoder

	// Place returns the place of the services that it decodes.
	Place() registry.Place

	// Dependencies returns the entries that must be read before the given ones can be
	// decoded.
	Dependencies(entries []registry.Entry) []Ref

	// Decode returns the services in the entries of any number of groups. Extras are
	// the dependencies that were found. An entry that cannot be decoded has an error
	// and does not affect the other entries.
	Decode(entries, extras []registry.Entry) ([]*registry.Service, []DecodeError)
}

// Scoped is implemented by codecs whose services have other names than their groups.
type Scoped interface {
	// Scope returns the scope of all services that a group may have, as
	// registry.Table.Unknown takes it.
	Scope(group registry.Group) string
}

// ScopeOf returns the scope of all services that a group may have in a format.
func ScopeOf(format interface{ Kind() string }, group registry.Group) string {
	if scoped, ok := format.(Scoped); ok {
		return scoped.Scope(group)
	}
	return group.String()
}

// Ref names an entry that a Codec depends on, or with an empty key all entries of a
// group.
type Ref struct {
	Group registry.Group
	Key   string
}

// DecodeError is an entry that could not be decoded.
type DecodeError struct {
	Entry registry.Entry
	Err   error
}

// Error names the entry and the reason.
func (f DecodeError) Error() string {
	return f.Entry.Group.String() + ": " + f.Entry.Key + ": " + f.Err.Error()
}

// Unwrap returns the reason.
func (f DecodeError) Unwrap() error { return f.Err }

// Attributes yields the attributes of an endpoint, and those attributes of its service
// that the endpoint does not override, in no order.
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

// KeyOf returns the service key of an interface.
func KeyOf(i registry.Interface) naming.ServiceKey {
	return naming.ServiceKey{Category: naming.Providers, Interface: i.Name, Version: i.Version, Group: i.Group}
}

// JSON returns strings, numbers, and structs and maps of them without HTML escapes.
func JSON(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // only for values that JSON cannot encode
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// AppendText appends a text as a JSON string.
func AppendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return append(b, JSON(s)...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// AppendObject appends a JSON object with n fields, in the given order.
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

// AppendMap appends a JSON object with the fields of a map, sorted by key.
func AppendMap(b []byte, m map[string]string) []byte {
	var room [32]string
	keys := slices.AppendSeq(room[:0], maps.Keys(m))
	slices.Sort(keys)
	return AppendObject(b, len(keys), func(i int) (string, string) { return keys[i], m[keys[i]] })
}

// A Replacement is the way a changed entry replaces the old one in ZooKeeper. It depends
// on what consumers of the format watch.
type Replacement uint8

// The kinds of replacement.
const (
	// InPlace sets the data of the node, which consumers watch or poll.
	InPlace Replacement = iota

	// Recreated deletes the node and creates it again in one transaction. Consumers
	// watch only the names of nodes, and read the data when the names change.
	Recreated

	// Overlapping creates another node, and deletes the old one some time later.
	// Consumers identify providers by the names of nodes. They would have no provider
	// between a deletion and a creation.
	Overlapping
)

// Omission is the reason to leave out an endpoint, or a key of its metadata, that
// consumers of a format cannot or must not see. It is not a failure of the format:
// everything else of the service is written and deleted as usual.
type Omission struct{ Reason string }

// Error returns the reason.
func (u *Omission) Error() string { return u.Reason }

// TagOmission returns why an endpoint with a tag is left out if tags are not written:
// without the tag, consumers that request no tag would call the endpoint.
func TagOmission(tag string) error {
	return &Omission{"has tag " + naming.Quote(tag) + ", which hides it from consumers without that tag; " +
		"set tags: true to write it"}
}

// hasFailure reports whether one of the reasons is not an Omission.
func hasFailure(reasons []error) bool {
	return slices.ContainsFunc(reasons, func(err error) bool {
		_, isOmission := errors.AsType[*Omission](err)
		return err != nil && !isOmission
	})
}

// Encoded returns the results of Encoder.Encode, from the entries of a service and
// the reasons why other parts of it are left out.
func Encoded(entries []registry.Entry, omissions []error) ([]registry.Entry, error) {
	reason := errors.Join(omissions...)
	if reason == nil {
		return entries, nil
	}
	out := &registry.LeftOut{Reason: reason}
	hasEndpoint := slices.ContainsFunc(entries, func(e registry.Entry) bool { return registry.IsEndpoint(e.Key) })
	if hasFailure(omissions) && !hasEndpoint {
		out.All = registry.Unwritable
	}
	return entries, out
}

// Reserved counts, by key, the endpoints with a user's metadata under a key that
// consumers of a format interpret themselves.
type Reserved map[string]int

// Omission returns an error that names the keys that are left out, or nil if none is.
func (r Reserved) Omission(format string) error {
	if len(r) == 0 {
		return nil
	}
	keys := slices.Sorted(maps.Keys(r))
	most := slices.Max(slices.Collect(maps.Values(r)))
	return &Omission{fmt.Sprintf("metadata %.200q left out of %s: consumers of %s interpret it differently; "+
		"use metadata.rename to keep it under another key", strings.Join(keys, ", "), endpoints(most), format)}
}

// PathOmission returns an error about the URL paths of endpoints that are left out, or
// nil if no endpoint has one.
func PathOmission(s *registry.Service, where string) error {
	n, example := 0, ""
	for _, e := range s.Endpoints {
		if e.Health.Offered() && e.URLPath != "" {
			n, example = n+1, e.URLPath
		}
	}
	if n == 0 {
		return nil
	}
	return &Omission{fmt.Sprintf("path left out of %s, such as %s: %s cannot store it, so consumers must know it",
		endpoints(n), naming.Quote(example), where)}
}

func endpoints(n int) string { return registry.Counted(n, "endpoint", "endpoints") }

// WeightOmission returns an error about the weights of n endpoints that are left out, or
// nil for 0.
func WeightOmission(n int, format string) error {
	if n == 0 {
		return nil
	}
	return &Omission{fmt.Sprintf("weight left out of %s: consumers of %s have no weights in this registry",
		endpoints(n), format)}
}

// maxHost is the maximum length of a host name.
const maxHost = 253

// The reasons why an address or a protocol cannot be written.
var (
	errEmpty = errors.New("is empty")
	errPort  = errors.New("port 0 cannot be called")
	errHost  = errors.New("is neither an IP address nor a host name")
)

// CheckProtocol refuses texts that cannot be the scheme of a URL.
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

// CheckAddress refuses addresses that no consumer can call. Which of the other addresses
// may be offered is decided elsewhere.
func CheckAddress(host string, port uint16) error {
	if port == 0 {
		return fmt.Errorf("%.80q: %w", host, errPort)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.IsUnspecified() || addr.Zone() != "" {
			return fmt.Errorf("%q cannot be called from other machines", host)
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
