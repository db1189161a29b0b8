package bridge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/guard"
	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A scope is what one guard judges: the endpoints that the target stores of one
// bridge, which may be none of the loop's any more.
type scope struct {
	name     string
	pipeline *pipeline // nil: the bridge is none of the loop's, and claims nothing
	guard    *guard.Guard
	changed  bool      // since the guard judged last
	waits    bool      // the guard lets something go by time alone
	next     time.Time // when it has to judge again; zero: not before something changes
	asked    time.Time // when the source was last asked for a new connection
	held     *held     // as it was published last; nil: nothing is
	denied   *held     // likewise
	decided  string    // what a person decided last about what is held
	record   string    // what the names of its records begin with
}

// held is a hold as status shows it, with its keys.
type held struct {
	Hold

	keys []guard.Key
}

// holds returns what is held and what was denied.
func (b *scope) holds() (all []*held) {
	for _, h := range []*held{b.held, b.denied} {
		if h != nil {
			all = append(all, h)
		}
	}
	return all
}

// holdStatus returns a hold as status shows it; nil where there is none.
func (b *scope) holdStatus(target string, h *guard.Hold) *held {
	if h == nil {
		return nil
	}
	where := sha256.Sum256([]byte(target + "\x00" + b.name))
	out := &held{keys: h.Keys, Hold: Hold{
		ID: hex.EncodeToString(where[:3]) + "-" + h.ID, Bridge: b.name, Since: h.Since,
		Reason: fmt.Sprintf("%d of %d services would have no endpoint left", h.Emptied, h.Services), Release: b.release(h),
	}}
	switch {
	case b.pipeline == nil:
		out.Reason = "bridge " + b.name + " is not configured"
	case h.Emptied == 0:
		out.Reason = fmt.Sprintf("%d of %d endpoints would be gone within %s", h.Lost, h.Endpoints, b.guard.Options.Window)
	}
	for _, k := range h.Keys {
		if n := len(out.Groups); n == 0 || out.Groups[n-1] != k.Service {
			out.Groups = append(out.Groups, k.Service)
		}
		out.Entries = append(out.Entries, k.Service.String()+" "+k.Key)
	}
	return out
}

// release says what ends a hold.
func (b *scope) release(h *guard.Hold) string {
	switch confirm := b.guard.Options.Confirm; {
	case b.guard.Options.Mode == GuardWarn:
		return "at once: guard.mode is warn"
	case b.pipeline == nil:
		return "by approval, or once the bridge is configured again"
	case confirm == 0:
		return "by approval"
	case h.Person && 2*h.Emptied > h.Services && h.Emptied < h.Services:
		return "by approval alone: more than half of its services would have no endpoint left"
	case h.Person:
		return "by approval alone: no endpoint that is stored is claimed"
	}
	return "by approval, or if the source still says so over a new connection " + b.guard.Options.Confirm.String() + " after it began"
}

// An orphan is a key of ours that the target stores and nobody claims.
type orphan struct {
	plan.Orphan
	item     *item
	scope    *scope    // of the bridge that claimed it last or, by its mark, wrote it
	author   string    // that bridge; empty: nobody claimed it, and it does not say
	since    time.Time // when it was first seen, or what waits began anew
	unknown  bool      // at the last look the source could not report it
	released string    // how the hold ended that let it go; empty: none did
}

// missing reports whether its source did not report that it is gone.
func (o *orphan) missing() bool { return !o.Known || o.Evidence == plan.Missing }

func (o *orphan) entry() registry.Entry {
	return registry.Entry{Group: o.item.group, Key: o.Key, Value: o.Value}
}

// A verdict says whether an orphan may be deleted; where it may not, why, and
// from when on it may if time alone is missing.
type verdict struct {
	reason Reason // empty: it may be deleted
	detail string
	at     time.Time
}

// settling applies the wait of what is no endpoint. What stands for a group itself
// waits for as long as a loss counts: a source that begins cannot
// distinguish a service without an endpoint for a moment from one that ended, and
// consumers look for the next endpoint there.
func (o *orphan) settling(now time.Time) verdict {
	opts := o.scope.guard.Options
	wait := opts.Settle
	if opts.Mode == GuardOff || !o.missing() && !registry.IsPart(o.Key) {
		wait = 0
	} else if wait > 0 && o.Key == registry.HeadKey {
		wait = max(wait, opts.Window)
	}
	if at := o.since.Add(wait); wait > 0 && now.Before(at) {
		return verdict{reason: ReasonWaiting, detail: "what is missing settles for " + wait.String(), at: at}
	}
	return verdict{}
}

// ended says how the hold that is shown ended.
func (b *scope) ended(cause string) string {
	if b.held == nil {
		return "hold ended: " + cause
	}
	return "hold " + b.held.ID + " ended: " + cause
}

// showHold reports a hold that began, changed or ended.
func (g *guards) showHold(b *scope, r guard.Round, now time.Time) {
	before := b.held
	b.held, b.denied = b.holdStatus(g.opts.Target, b.guard.Hold()), b.holdStatus(g.opts.Target, b.guard.Denied())
	if b.denied != nil {
		b.denied.Denied, b.denied.Reason, b.denied.Release = true, "a person denied it", releaseDenied
	}
	switch h := b.held; {
	case h == nil && before != nil:
		why := "nothing of it is to be deleted any more"
		if len(r.Released) > 0 {
			why = r.Released[0].Cause
		}
		g.journal.emitHoldEnd(b, before, cmp.Or(b.decided, why))
	case h != nil && before == nil:
		g.touch(h.Groups, now) // whose services say from now on that they are held
		g.journal.emitHold(h.Hold, "held back")
		g.journal.warnHold(b, h)
	case h != nil && before.ID != h.ID:
		g.touch(h.Groups, now)
		g.journal.emitHold(h.Hold, "held back, its entries changed")
	case h != nil && before.Release != h.Release:
		g.journal.emitHold(h.Hold, "held back, what ends it changed")
	}
	b.decided = ""
}
