package metadata

import "github.com/xds-bridge/xds-bridge/registry"

// A Codec translates between services and what one format stores for them.
// It is pure: the same input gives the same bytes on every replica, inputs
// come back unchanged, outputs are in the order of Entry.Compare. An
// implementation is safe for use by many goroutines.
type Codec interface {
	// Encode returns every entry that the format should hold for a service.
	// Endpoints that are not Offered, and whatever LeftOut names, have none. It
	// fails only where a service that has interfaces and offered endpoints would
	// come out with no entry at all, so that nothing is deleted for a reason
	// that lies in the format.
	Encode(s *registry.Service) ([]registry.Entry, error)

	// LeftOut says which parts of a service Encode leaves out because the format
	// cannot hold them, and why, one line each; nil where there are none.
	LeftOut(s *registry.Service) error

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
