package bridge

import (
	"fmt"
	"time"
)

// Event is something that happened and that a person may ask about later:
// what, why, since when, and what would end it.
type Event struct {
	Time    time.Time `json:"time"`
	Kind    EventKind `json:"kind"`
	Target  string    `json:"target,omitempty"`
	Bridge  string    `json:"bridge,omitempty"`
	Subject string    `json:"subject,omitempty"` // the hold, service or group that it is about
	What    string    `json:"what"`
	Why     string    `json:"why,omitempty"`
	Who     string    `json:"who,omitempty"`     // who decided it
	Since   time.Time `json:"since,omitzero"`    // of what it ends
	Release string    `json:"release,omitempty"` // what would end it

	Changes []EntryChange `json:"changes,omitempty"` // of a batch that was applied, the first of them
}

// EventKind tells events apart.
type EventKind string

// The kinds of events.
const (
	EventHold     EventKind = "hold"     // deletions began to be held back, or their set changed
	EventRelease  EventKind = "release"  // a hold ended
	EventDenied   EventKind = "denied"   // a hold was denied
	EventConflict EventKind = "conflict" // a claim cannot be honoured
	EventInvalid  EventKind = "invalid"  // a service cannot be written and is left as it was
	EventDrift    EventKind = "drift"    // another changed what was written
	EventRefused  EventKind = "refused"  // the target refuses a write, and repeating does not help
	EventSession  EventKind = "session"  // the target lost its session
	EventKept     EventKind = "kept"     // entries of ours stay that no bridge writes as it is configured now
	EventReload   EventKind = "reload"   // the configuration was reloaded, or was not taken

	EventCondition EventKind = "condition" // something that status shows began or ended
	EventApplied   EventKind = "applied"   // a batch of changes was written
)

// tell tells of an event, where anybody listens.
func (l *loop) tell(e Event) {
	if l.opts.Tell != nil {
		e.Time, e.Target = time.Now(), l.opts.Target
		l.opts.Tell(e)
	}
}

// tellOf tells of a hold that is new or whose entries changed.
func (l *loop) tellOf(h Hold, what string) {
	l.tell(Event{
		Kind: EventHold, Bridge: h.Bridge, Subject: h.ID, Why: h.Reason, Since: h.Since, Release: h.Release,
		What: fmt.Sprintf("%s: %d deletions", what, len(h.Entries)),
	})
}
