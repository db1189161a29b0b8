package metadata

import (
	"encoding/json"
	"iter"
	"strings"

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
