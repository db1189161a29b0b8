package registry

// LeftOut is the error beside the entries of a service that says which parts of
// it have none, and why. It is no failure: what it does not name is written.
type LeftOut struct {
	Reason error
	All    Absence // why none of it is written; empty: only the entries tell
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
