package registry

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// A Source reports to a Table what one registry holds.
type Source interface {
	// Run keeps the table up to date until ctx ends and then returns nil,
	// after everything it started has ended. While the registry cannot be
	// reached it leaves the rows as they are, says why with Table.Stale and
	// continues trying; it returns an error only for what no retry can mend.
	Run(ctx context.Context, table *Table) error
}

// A Target is a registry the bridge writes to. Its calls may run at the same
// time, but never two for one group. They do not retry: a failed call is
// repeated by the caller, after it has read the group again.
type Target interface {
	// Groups lists every group that holds any entry, whoever owns it. It may
	// name groups that turn out to be empty, and never leaves one out.
	Groups(ctx context.Context) ([]Group, error)

	// Read returns everything the group holds, whoever owns it; nothing and
	// no error for a group that does not exist. A partial, refused or failed
	// read is an error, never a shorter list.
	Read(ctx context.Context, group Group) ([]Held, error)

	// Write applies the change, under the condition that what it replaces or
	// deletes is still as it was held: ErrConflict where it is not, and then
	// nothing or a part was applied. It may be repeated, and it leaves the
	// entries of other owners as they are.
	//
	// Where the target refuses some keys the error is Refused, and what was
	// applied is Change.Except of these. An error that wraps ErrRefused
	// and names no keys refuses the whole change: nothing or a part of it was
	// applied. So is a change of what is not ours refused. Any other failure
	// hides what was refused beside it.
	Write(ctx context.Context, change Change) error
}

// A Sessioned target holds what it writes only as long as its connection
// lives. Lost is ready after the entries of an earlier session went or will
// go, and everything of ours has to be written once more.
type Sessioned interface {
	Lost() <-chan struct{}
}

// An Admitted target has its first Write wait until it is sure that nobody else
// writes there. Admission says what it waits for; nil: nothing. It must not block.
type Admitted interface{ Admission() error }

// A Shared target keeps apart what each of several replicas publishes and
// shows its readers the sum, so that all of them publish the same.
type Shared interface{ Shared() }

// A Recorder keeps small texts of an owner in the registry itself, where every
// replica and the next process of that owner find them. They are never a
// reason to delete anything: at most they lift what keeps it.
type Recorder interface {
	// Records returns the texts of a kind by name. Where some of them are
	// refused it returns the others, and an error that is ErrRefused.
	Records(ctx context.Context, kind string) (map[string]string, error)

	// Record stores a text; an empty one is forgotten. Kind and name are
	// words of letters, digits and hyphens.
	Record(ctx context.Context, kind, name, text string) error
}

// A Verified target may confirm a write and lose it all the same, or shows
// what was written only some time later. VerifyAfter is how long after a write
// a group should be read back; 0 for never. It is asked once.
type Verified interface {
	VerifyAfter() time.Duration
}

// A Watched target notices what happens to groups.
type Watched interface {
	// Watch reads a group as Read does, and has it watched until Read reads it or
	// Lost is ready.
	Watch(ctx context.Context, group Group) ([]Held, error)

	// Changed is ready after a group changed that is watched. It wakes one
	// caller alone.
	Changed() <-chan struct{}

	// Changes returns the groups that changed since they were read last, each once:
	// by others or, if the target cannot distinguish them, by Write. A change by others
	// after Write may be left out until the group is read. It must not block.
	Changes() []Group
}

// An Overlapping target has groups whose readers fail calls while an entry is
// replaced, unless what replaces it is there for a while before it goes.
type Overlapping interface {
	// Overlap returns how long an entry of a group is left beside the one that
	// replaces it; 0 where Write replaces it.
	Overlap(group Group) time.Duration
}

// A Serving target answers readers of its own and takes what it holds for the
// whole. SourcesComplete is called once it is: every source reported everything and
// all of that was written. Before that it answers nobody. The call may be repeated,
// and must not block.
type Serving interface {
	SourcesComplete()
}

// ErrConflict says that a group was changed by another since it was read.
var ErrConflict = errors.New("changed by another since it was read")

// ErrFenced says that another replica has taken over the right to write, so
// that nothing of a change was applied.
var ErrFenced = errors.New("another replica has taken the lease")

// ErrRefused is wrapped by errors of a Target for which a repetition of the
// same call cannot help: the entry or the group breaks a limit or a rule of
// the registry, or access is denied. The caller reports it and tries again
// only at its slowest rate.
var ErrRefused = errors.New("refused")

// Backoff is the wait between attempts: Min, doubled up to Max.
type Backoff struct{ Min, Max time.Duration }

// After returns the wait after so many failures in a row, from 1.
func (b Backoff) After(failures int) time.Duration {
	d := b.Min
	for i := 1; i < failures && d < b.Max; i++ {
		d *= 2
	}
	return min(d, b.Max)
}

// Spread returns After less up to a fifth by chance, so that those who lost one
// server do not all come back at once.
func (b Backoff) Spread(failures int) time.Duration {
	d := b.After(failures)
	return d - time.Duration(rand.Int64N(int64(d)/5+1)) //nolint:gosec // spreads load, keeps no secret
}
