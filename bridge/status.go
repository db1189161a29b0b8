package bridge

import (
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Reason says how far a service of a bridge is. A service has one reason at a time: its worst.
type Reason string

// The reasons, from the best to the worst.
const (
	ReasonSynced     Reason = "synced"     // the target stores what the service claims, or the service came from there
	ReasonStandby    Reason = "standby"    // another replica leads; this one is ready to lead
	ReasonEmpty      Reason = "empty"      // the service claims nothing: no offered endpoint, or no service key
	ReasonSkipped    Reason = "skipped"    // the bridge does not select the service
	ReasonReadOnly   Reason = "read-only"  // the policy of a bridge forbids the change
	ReasonPending    Reason = "pending"    // a write is due
	ReasonWaiting    Reason = "waiting"    // a deletion waits for time
	ReasonKept       Reason = "kept"       // an unclaimed entry in its group is kept, because its service is unknown
	ReasonUnknown    Reason = "unknown"    // the source cannot report it; nothing is changed
	ReasonHeld       Reason = "held"       // a deletion is held back until approved or confirmed
	ReasonConflict   Reason = "conflict"   // an entry of another owner or service has the place of the claim
	ReasonUnwritable Reason = "unwritable" // in at least one of its formats none of its endpoints can be written
	ReasonRetrying   Reason = "retrying"   // the last call to the target failed
	ReasonRefused    Reason = "refused"    // the target refuses it, and a retry does not help
)

// Reasons returns all reasons, from the best to the worst.
func Reasons() []Reason {
	return []Reason{
		ReasonSynced, ReasonStandby, ReasonEmpty, ReasonSkipped, ReasonReadOnly, ReasonPending, ReasonWaiting,
		ReasonKept, ReasonUnknown, ReasonHeld, ReasonConflict, ReasonUnwritable, ReasonRetrying, ReasonRefused,
	}
}

// Compare orders reasons: it is negative if r is better than other.
func (r Reason) Compare(other Reason) int {
	all := Reasons()
	return slices.Index(all, r) - slices.Index(all, other)
}

// Done reports whether this replica has nothing left to do for a service with this reason.
func (r Reason) Done() bool {
	return slices.Contains([]Reason{ReasonSynced, ReasonStandby, ReasonEmpty, ReasonSkipped, ReasonReadOnly}, r)
}

// Status is the status of a loop. It is a copy that the caller owns.
type Status struct {
	Target    string        `json:"target"`
	Owner     string        `json:"owner"`
	Listed    bool          `json:"listed"`     // the target was listed once
	Groups    int           `json:"groups"`     // known to the loop
	Owned     int           `json:"owned"`      // our entries in the target
	Foreign   int           `json:"foreign"`    // entries of others in these groups
	Queue     int           `json:"queue"`      // groups that are due
	Arriving  int           `json:"arriving"`   // groups that wait for their first write
	Budget    int           `json:"budget"`     // calls to the target at a time
	OldestDue time.Duration `json:"oldest_due"` // how long the first of Queue has been due
	DueSince  time.Time     `json:"due_since,omitzero"`
	LastRead  time.Time     `json:"last_read,omitzero"`
	LastWrite time.Time     `json:"last_write,omitzero"`
	LastError string        `json:"last_error,omitempty"`

	Unrecorded string `json:"unrecorded,omitempty"` // why a record that a restart needs cannot be stored or read

	Bridges   []BridgeStatus  `json:"bridges"`
	Services  []ServiceStatus `json:"services"`
	Holds     []Hold          `json:"holds"`
	Conflicts []Conflict      `json:"conflicts"`
	Kept      []Kept          `json:"kept,omitempty"` // our entries that are unclaimed and kept, without a known service
	Counts    Counts          `json:"counts"`
}

// Counts are the lengths of the lists of a status. Summary has them without the lists.
type Counts struct {
	Services  int       `json:"services"`
	Holds     int       `json:"holds"`
	HeldSince time.Time `json:"held_since,omitzero"` // of the oldest hold
	Conflicts int       `json:"conflicts"`

	Denied      int       `json:"denied"`                // entries whose deletion an operator denied
	DeniedSince time.Time `json:"denied_since,omitzero"` // of the oldest denial
}

// Find returns the part of a status about the services with the given names and their groups,
// and about the groups that named selects. It includes all other services that claim or left
// entries in these groups, and their holds, conflicts and kept entries.
func (s Status) Find(names map[registry.Name]bool, named func(registry.Group) bool) Status {
	groups := make(map[registry.Group]bool)
	for _, sv := range s.Services {
		for _, group := range sv.Groups {
			groups[group] = groups[group] || names[sv.Service]
		}
	}
	here := func(g registry.Group) bool { return groups[g] || named(g) }
	anyHere := func(list []registry.Group) bool { return slices.ContainsFunc(list, here) }
	s.Services = filtered(s.Services, func(sv ServiceStatus) bool { return names[sv.Service] || anyHere(sv.Groups) })
	s.Holds = filtered(s.Holds, func(h Hold) bool { return anyHere(h.Groups) })
	s.Conflicts = filtered(s.Conflicts, func(c Conflict) bool { return here(c.Group) })
	kept := s.Kept
	s.Kept = nil
	for _, k := range kept {
		if part, some := k.within(here); some {
			s.Kept = append(s.Kept, part)
		}
	}
	return s
}

// filtered returns the elements that fit, as a new slice.
func filtered[T any](list []T, fits func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(x T) bool { return !fits(x) })
}

// Kept are those of our unclaimed entries that are kept for one reason: a source cannot report
// the services that they came from, or they wait for time.
type Kept struct {
	Why     string           `json:"why"`
	Entries int              `json:"entries"`
	Groups  []registry.Group `json:"groups"`         // of the entries
	Keys    []string         `json:"keys"`           // as group and key
	Until   time.Time        `json:"until,omitzero"` // when the first of them may be deleted; zero: not by time alone
}

// within returns the entries that are kept in some groups, and whether there are any.
func (k Kept) within(groups func(registry.Group) bool) (Kept, bool) {
	all := k
	k.Groups, k.Keys = nil, nil
	for _, g := range all.Groups {
		if !groups(g) {
			continue
		}
		k.Groups = append(k.Groups, g)
		for _, key := range all.Keys {
			if strings.HasPrefix(key, g.String()+" ") {
				k.Keys = append(k.Keys, key)
			}
		}
	}
	k.Entries = len(k.Keys)
	return k, len(k.Groups) > 0
}

// InSync reports whether nothing is left to do: every bridge is synced, no group is due, and
// no service is pending, retrying, refused or unwritable.
func (s Status) InSync() bool {
	for _, b := range s.Bridges {
		unfinished := 0
		for _, r := range []Reason{ReasonPending, ReasonRetrying, ReasonRefused, ReasonUnwritable} {
			unfinished += b.Reasons[r]
		}
		if !b.Synced || unfinished > 0 {
			return false
		}
	}
	return s.Listed && s.Queue == 0
}

// BridgeStatus is the status of one bridge.
type BridgeStatus struct { //nolint:revive // Status is the whole, this is the part of one bridge
	Name     string            `json:"name"`
	Policy   Policy            `json:"policy"`
	Guard    Mode              `json:"guard"`
	Synced   bool              `json:"synced"`
	Stale    string            `json:"stale,omitempty"`
	Unknown  map[string]string `json:"unknown,omitempty"`
	Scopes   int               `json:"scopes"`  // the number of unknown scopes
	Entries  int               `json:"entries"` // claimed
	Services int               `json:"services"`
	Reasons  map[Reason]int    `json:"reasons"`           // the number of services with each reason
	Nothing  string            `json:"nothing,omitempty"` // if the bridge claims nothing: an empty service, and why
}

// ServiceStatus is the state of one service of one bridge.
type ServiceStatus struct {
	Bridge    string           `json:"bridge"`
	Service   registry.Name    `json:"service"`
	Reason    Reason           `json:"reason"`
	Detail    string           `json:"detail,omitempty"`
	Groups    []registry.Group `json:"groups,omitempty"`
	Entries   int              `json:"entries"`
	LastWrite time.Time        `json:"last_write,omitzero"`
	LastError string           `json:"last_error,omitempty"`
	Left      []string         `json:"left,omitempty"` // its unclaimed entries that are kept, as group and key
	Until     time.Time        `json:"until,omitzero"` // when the first of Left may be deleted; zero: not by time alone

	Registered []Registered `json:"registered,omitempty"` // addresses that register themselves under other names
	Others     *Others      `json:"others,omitempty"`     // nil: none
}

// Hold is a set of deletions that is held back. A standby shows at most 20 of its groups and
// entries.
type Hold struct {
	// ID has a hash of the target and the bridge before the hyphen, and one of the entries
	// after it.
	ID string `json:"id"`

	Bridge  string           `json:"bridge"` // that wrote the entries; it need not be configured
	Reason  string           `json:"reason"`
	Since   time.Time        `json:"since,omitzero"` // when the hold began or, if Denied, when it was denied
	Release string           `json:"release"`        // what would end it, to be read after "it ends"
	Groups  []registry.Group `json:"groups"`
	Count   int              `json:"count"`
	Entries []string         `json:"entries"`          // as group and key
	Denied  bool             `json:"denied,omitempty"` // an operator keeps the entries until each is claimed again
}

// Conflict is a claim that cannot be honoured.
type Conflict struct {
	Group   registry.Group `json:"group"`
	Key     string         `json:"key"`
	Bridge  string         `json:"bridge"`
	Service registry.Name  `json:"service"`
	Winner  string         `json:"winner"` // the other owner, or bridge and service
}

// Observation is one thing that a loop did or saw, for metrics.
type Observation struct {
	Kind    ObservationKind
	Bridge  string        // empty if it concerns the whole target
	Op      string        // of a call: list, read, write; of entries: create, update, delete
	Count   int           // of entries, or 1
	Took    time.Duration // the duration of a call
	Latency time.Duration // of a write, since its first change was seen
	Err     error
}

// ObservationKind distinguishes observations.
type ObservationKind string

// The kinds of observations.
const (
	ObservedCall       ObservationKind = "call"       // a call to the target ended
	ObservedApplied    ObservationKind = "applied"    // entries were created, updated or deleted
	ObservedHold       ObservationKind = "hold"       // deletions began to be held back
	ObservedConflict   ObservationKind = "conflict"   // a conflict was seen for the first time
	ObservedUnwritable ObservationKind = "unwritable" // no endpoint of a service can be written
	ObservedDrift      ObservationKind = "drift"      // a read differed from what was written
	ObservedCoalesce   ObservationKind = "coalesce"   // a change joined a pending one
	ObservedRetry      ObservationKind = "retry"      // a call failed, and will be retried
)
