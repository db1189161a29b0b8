package metadata

import "github.com/xds-bridge/xds-bridge/registry"

// An Encoder is the half of a Codec that writes.
type Encoder interface {
	// Kind is the name of the format, the Kind of its groups.
	Kind() string

	// Encode returns every entry that the format should hold for a service;
	// endpoints that are not Offered have none. The error is a *registry.LeftOut
	// beside them, one line each, where the format cannot hold all of it. Any other
	// stands where a service that has interfaces and offered endpoints would come
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

	// Needs names what has to be read beside the entries before they can be
	// decoded.
	Needs(entries []registry.Entry) []Ref

	// Decode returns the services that the entries of any number of groups tell
	// of, with extras being what Needs asked for, as far as it was found. An
	// entry that cannot be read is a fault and costs its neighbours nothing.
	Decode(entries, extras []registry.Entry) ([]*registry.Service, []Fault)
}

// Scoped is implemented by codecs that do not name services as the groups are
// named which hold their entries.
type Scoped interface {
	// Scope covers the names of all services that entries of a group may tell
	// of, as registry.Table.Unknown takes it.
	Scope(group registry.Group) string
}

// ScopeOf returns what covers the names of all services that entries of a group
// may tell of, in a format that may be Scoped.
func ScopeOf(format interface{ Kind() string }, group registry.Group) string {
	if scoped, ok := format.(Scoped); ok {
		return scoped.Scope(group)
	}
	return group.String()
}

// Ref names entries that a Codec needs: one, or with an empty key all of a
// group.
type Ref struct {
	Group registry.Group
	Key   string
}

// Fault is an entry that could not be read.
type Fault struct {
	Entry registry.Entry
	Err   error
}

// Error says what could not be read and why.
func (f Fault) Error() string {
	return f.Entry.Group.String() + ": " + f.Entry.Key + ": " + f.Err.Error()
}

// Unwrap returns why the entry could not be read.
func (f Fault) Unwrap() error { return f.Err }
