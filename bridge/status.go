package bridge

import (
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// Reason is the one current reason that a service of a bridge has.
type Reason string

// The reasons, from the best to the worst.
const (
	ReasonSynced     Reason = "synced"  // the target holds what the service claims, or the service came from there
	ReasonStandby    Reason = "standby" // another replica leads; this one is ready to lead
	ReasonEmpty      Reason = "empty"   // the service claims nothing: no offered endpoint, or no service key
	ReasonSkipped    Reason = "skipped" // the bridge's selection leaves it out
	ReasonReadOnly   Reason = "read-only"
	ReasonPending    Reason = "pending"    // a write is due
	ReasonWaiting    Reason = "waiting"    // a deletion waits for its guard's time
	ReasonKept       Reason = "kept"       // an unclaimed entry of this owner is kept beside it, because it cannot be known whose it was
	ReasonUnknown    Reason = "unknown"    // the source cannot report it; left as it was
	ReasonHeld       Reason = "held"       // a deletion is held back until approved or confirmed
	ReasonConflict   Reason = "conflict"   // an entry of another owner or service is where the claim would be
	ReasonUnwritable Reason = "unwritable" // nothing of what it offers can be written, in one of its formats at least; what was removed goes
	ReasonRetrying   Reason = "retrying"   // the last call to the target failed
	ReasonRefused    Reason = "refused"    // the target refuses it, and repeating does not help
)

// Reasons returns all reasons, from the best to the worst.
func Reasons() []Reason {
	return []Reason{
		ReasonSynced, ReasonStandby, ReasonEmpty, ReasonSkipped, ReasonReadOnly, ReasonPending, ReasonWaiting,
		ReasonKept, ReasonUnknown, ReasonHeld, ReasonConflict, ReasonUnwritable, ReasonRetrying, ReasonRefused,
	}
}

// Compare orders reasons: it is negative if r is better than the other.
func (r Reason) Compare(other Reason) int {
	all := Reasons()
	return slices.Index(all, r) - slices.Index(all, other)
}

// Done reports whether this replica has nothing left to do for a service of this reason.
func (r Reason) Done() bool {
	return slices.Contains([]Reason{ReasonSynced, ReasonStandby, ReasonEmpty, ReasonSkipped, ReasonReadOnly}, r)
}

// Status is what a loop is doing. It is a copy that the caller owns.
type Status struct {
	Target    string        `json:"target"`
	Owner     string        `json:"owner"`
	Listed    bool          `json:"listed"`     // the target reported its groups once
	Groups    int           `json:"groups"`     // known to the loop
	Owned     int           `json:"owned"`      // entries of ours that the target holds
	Foreign   int           `json:"foreign"`    // entries of others in those groups
	Queue     int           `json:"queue"`      // groups due now
	Arriving  int           `json:"arriving"`   // groups that were never written to and wait for it
	Budget    int           `json:"budget"`     // calls to the target at a time, by now
	OldestDue time.Duration `json:"oldest_due"` // how long the first of them has been due
	DueSince  time.Time     `json:"due_since,omitzero"`
	LastRead  time.Time     `json:"last_read,omitzero"`
	LastWrite time.Time     `json:"last_write,omitzero"`
	LastError string        `json:"last_error,omitempty"`

	Unrecorded string `json:"unrecorded,omitempty"` // why what a restart has to know is not stored, or not read

	Bridges   []BridgeStatus  `json:"bridges"`
	Services  []ServiceStatus `json:"services"`
	Holds     []Hold          `json:"holds"`
	Conflicts []Conflict      `json:"conflicts"`
	Kept      []Kept          `json:"kept,omitempty"` // entries of ours that nobody claims and that stay
	Counts    Counts          `json:"counts"`
}

// Counts say how long the lists of a status are, where they are left out too.
type Counts struct {
	Services  int       `json:"services"`
	Holds     int       `json:"holds"`
	HeldSince time.Time `json:"held_since,omitzero"` // of the oldest hold
	Conflicts int       `json:"conflicts"`

	Denied      int       `json:"denied"`                // entries that stay because a person denied that they are deleted
	DeniedSince time.Time `json:"denied_since,omitzero"` // of the oldest denial
}

// Find returns of a status the services of these names and all that claim or left
// something in the same groups, or in those that named is true of, with the holds
// and conflicts there and what is kept.
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
	all := s.Kept
	s.Kept = nil
	for _, k := range all {
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

// Kept are entries of ours that nobody claims and that stay for one reason: a
// source cannot report what they came from, or their time has not come.
type Kept struct {
	Why     string           `json:"why"`
	Entries int              `json:"entries"`
	Groups  []registry.Group `json:"groups"`         // that hold them
	Keys    []string         `json:"keys"`           // as group and key
	Until   time.Time        `json:"until,omitzero"` // when the first of them may go; zero: not by time alone
}

// within returns what is kept in some of the groups, and whether that is anything.
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

// InSync reports whether nothing is left to do: every bridge synced, no group
// due, no service in a state that a write would mend or that the target or
// its format refuses.
func (s Status) InSync() bool {
	for _, b := range s.Bridges {
		if !b.Synced || b.Reasons[ReasonPending]+b.Reasons[ReasonRetrying]+b.Reasons[ReasonRefused]+b.Reasons[ReasonUnwritable] > 0 {
			return false
		}
	}
	return s.Listed && s.Queue == 0
}

// BridgeStatus is what one bridge knows of its source.
type BridgeStatus struct { //nolint:revive // Status is the whole, this is the part of one bridge
	Name     string            `json:"name"`
	Policy   Policy            `json:"policy"`
	Guard    Mode              `json:"guard"`
	Synced   bool              `json:"synced"`
	Stale    string            `json:"stale,omitempty"`
	Unknown  map[string]string `json:"unknown,omitempty"`
	Scopes   int               `json:"scopes"`  // that are unknown
	Entries  int               `json:"entries"` // claimed
	Services int               `json:"services"`
	Reasons  map[Reason]int    `json:"reasons"`           // services by the one reason that each has
	Nothing  string            `json:"nothing,omitempty"` // of a bridge that claims nothing: a service that is empty, and why
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
	Left      []string         `json:"left,omitempty"` // entries that it claims no more and that stay, as group and key
	Until     time.Time        `json:"until,omitzero"` // when the first of these may go; zero: not by time alone

	Registered []Registered `json:"registered,omitempty"` // addresses that register themselves under other names
	Others     *Others      `json:"others,omitempty"`     // entries next to ours that providers registered themselves; nil: none
}

// Hold is a set of deletions that is held back.
type Hold struct {
	ID      string           `json:"id"`     // up to the hyphen of the target and the bridge, behind it of exactly this set
	Bridge  string           `json:"bridge"` // that wrote the entries; a name that no bridge has where it is not configured
	Reason  string           `json:"reason"`
	Since   time.Time        `json:"since,omitzero"` // of one that was denied, when that was
	Release string           `json:"release"`        // what would end it, as it follows "it ends"
	Groups  []registry.Group `json:"groups"`         // at a standby at most 20
	Count   int              `json:"count"`
	Entries []string         `json:"entries"`          // keys, as group and key; at a standby at most 20
	Denied  bool             `json:"denied,omitempty"` // a person keeps the entries until each is claimed again
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
	Bridge  string        // empty where it concerns the target as a whole
	Op      string        // of a call: list, read, write; of entries: create, update, delete
	Count   int           // entries, or 1
	Took    time.Duration // of a call
	Latency time.Duration // of a write: since the change was first seen
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
	ObservedDrift      ObservationKind = "drift"      // a reading differed from what had been written
	ObservedCoalesce   ObservationKind = "coalesce"   // a change joined one that was already due
	ObservedRetry      ObservationKind = "retry"
)
