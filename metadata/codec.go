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
	// Kind is the name of the format, the Kind of its groups.
	Kind() string

	// Encode returns the entries of a service. Endpoints that are not Offered have
	// none. The error is a *registry.LeftOut beside them, which says what the format
	// cannot hold, a line each. It changes nothing for the other endpoints.
	Encode(s *registry.Service) ([]registry.Entry, error)
}

// A Codec encodes and decodes services in one format. It is pure: equal inputs give
// equal bytes on every replica, inputs are not changed, entries are in the order of
// Entry.Compare. It is safe for use by many goroutines.
type Codec interface {
	Encoder

	// Place returns where the services lie that it decodes.
	Place() registry.Place

	// Dependencies returns what has to be read before the entries can be decoded.
	Dependencies(entries []registry.Entry) []Ref

	// Decode returns the services in the entries of any number of groups. Extras are
	// the dependencies that were found. An entry that cannot be decoded is an error
	// of its own, and the others are decoded.
	Decode(entries, extras []registry.Entry) ([]*registry.Service, []DecodeError)
}

// Scoped is implemented by codecs whose services have other names than their groups.
type Scoped interface {
	// Scope returns the scope of all services that a group may have, in the form of
	// registry.Table.Unknown.
	Scope(group registry.Group) string
}

// ScopeOf returns the scope of all services that a group may have in a format.
func ScopeOf(format interface{ Kind() string }, group registry.Group) string {
	if scoped, ok := format.(Scoped); ok {
		return scoped.Scope(group)
	}
	return group.String()
}

// Ref names an entry that a Codec depends on; with an empty key all of a group.
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

// Attributes yields the attributes of an endpoint, and those of its service that the
// endpoint does not have itself, in no order.
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

// KeyDubboRevision is the metadata by which an instance is one of Dubbo's applications:
// the revision of the application's metadata.
const KeyDubboRevision = "dubbo.metadata.revision"

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
		panic(err) // of values that JSON does not have
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// AppendText appends a text as JSON has it.
func AppendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return append(b, JSON(s)...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// AppendObject appends an object of JSON with n fields, in the given order.
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

// AppendMap appends an object of JSON with the fields of a map, by key.
func AppendMap(b []byte, m map[string]string) []byte {
	var room [32]string
	keys := slices.AppendSeq(room[:0], maps.Keys(m))
	slices.Sort(keys)
	return AppendObject(b, len(keys), func(i int) (string, string) { return keys[i], m[keys[i]] })
}

// A Replacement is how a changed entry replaces the old one in ZooKeeper. It depends
// on what consumers of the format watch.
type Replacement uint8

// The kinds of replacement.
const (
	// InPlace sets the data of the node, which consumers watch or poll.
	InPlace Replacement = iota

	// Recreated deletes the node and creates it again in one transaction. Consumers
	// watch the names alone, and read the data when these change.
	Recreated

	// Overlapping creates another node, and deletes the old one some time later.
	// Consumers identify providers by the names of nodes, and would have none
	// between a deletion and a creation.
	Overlapping
)

// Omission is the reason to leave out an endpoint, or a key of its metadata, that
// consumers of a format cannot or must not see. It is no failure of the format, and
// the rest of the service is written and deleted as usual.
type Omission struct{ Reason string }

// Error returns the reason.
func (u *Omission) Error() string { return u.Reason }

// TagOmission returns why an endpoint with a tag is left out if tags are not written:
// without it, consumers that ask for no tag would call the endpoint.
func TagOmission(tag string) error {
	return &Omission{"has tag " + naming.Quote(tag) + ", which hides it from consumers without one; the format carries it with tags: true"}
}

// fails reports whether one of the reasons is no Omission.
func fails(reasons []error) bool {
	return slices.ContainsFunc(reasons, func(err error) bool {
		_, unfit := errors.AsType[*Omission](err)
		return err != nil && !unfit
	})
}

// Encoded returns the results of Encoder.Encode, from the entries of a service and
// the reasons why the rest is left out.
func Encoded(entries []registry.Entry, left []error) ([]registry.Entry, error) {
	reason := errors.Join(left...)
	if reason == nil {
		return entries, nil
	}
	out := &registry.LeftOut{Reason: reason}
	if fails(left) && !slices.ContainsFunc(entries, func(e registry.Entry) bool { return registry.IsEndpoint(e.Key) }) {
		out.All = registry.Unwritable
	}
	return entries, out
}

// Reserved counts, by key, endpoints with metadata that consumers of a format would
// read as their own.
type Reserved map[string]int

// Omission returns which keys are left out, nil if none is.
func (r Reserved) Omission(format string) error {
	if len(r) == 0 {
		return nil
	}
	keys := slices.Sorted(maps.Keys(r))
	most := slices.Max(slices.Collect(maps.Values(r)))
	return &Omission{fmt.Sprintf("metadata %.200q left out of %s: consumers of %s read something else into it; metadata.rename can keep it",
		strings.Join(keys, ", "), endpoints(most), format)}
}

// PathOmission returns that the URL paths of endpoints are left out, nil if they have
// none.
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
	return &Omission{fmt.Sprintf("path left out of %s, such as %s: %s has no place for it, and consumers have to know it", endpoints(n), naming.Quote(example), where)}
}

func endpoints(n int) string { return registry.Counted(n, "endpoint", "endpoints") }

// WeightOmission returns that the weights of n endpoints are left out, nil for 0.
func WeightOmission(n int, format string) error {
	if n == 0 {
		return nil
	}
	return &Omission{fmt.Sprintf("weight left out of %s: consumers of %s know none in this registry", endpoints(n), format)}
}

// maxHost is the length of the longest host name.
const maxHost = 253

// The reasons why an address or a protocol cannot be written.
var (
	errEmpty = errors.New("is empty")
	errPort  = errors.New("port 0 cannot be called")
	errHost  = errors.New("is neither an IP address nor a host name")
)

// CheckProtocol refuses what cannot be the scheme of a URL.
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

// CheckAddress refuses addresses that nobody can call. Sources decide which of the
// others may be offered.
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
