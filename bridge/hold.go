package bridge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// holdGather is how long a hold takes in further losses: a source may tell of one
// fault in several pieces.
const holdGather = 10 * time.Second

// ErrUnrecorded says that a decision is not kept in the registry, which is what
// a restart and other replicas know of it. On a hold of this process it counts
// all the same.
var ErrUnrecorded = errors.New("the decision is not recorded")

// ErrNoHold says that no hold has the id that was asked for, such as when its
// set changed since it was shown.
var ErrNoHold = errors.New("no such hold: its entries changed, or it has ended")

// A hold is a set of removals that are held back together. Removals that come
// later than holdGather are judged on their own and do not join it.
type hold struct {
	target    string // its name in the configuration
	ward      *ward
	reason    string
	since     time.Time
	from      time.Time // since when the source has said the same of all of it
	dials     []int     // of the ways of the ward then
	set       map[*surplus]struct{}
	id        string    // empty while it has to be worked out
	shown     string    // the last id
	earlier   []Set     // what was shown before, the last of it
	size      int       // of the set of the last id
	less      bool      // some of it is surplus no more since the reason was given
	denied    string    // by whom
	record    string    // of the denial
	approval  string    // why no reading of the source confirms it; empty: one does
	rechecked time.Time // when a fresh reading was last asked for
}

// hold holds back what is pending in a ward and a loss. Where the guard only
// warns it says so, and all of it goes: nothing is shown as held that is not.
func (l *loop) hold(b *ward, why string, now time.Time) {
	h, isNew := l.open(b, now)
	h.reason, h.less = why, false
	h.gather(now)
	warns, what := b.guard.Mode == GuardWarn, "held back"
	switch {
	case warns:
		what = "would be held back"
	case !isNew:
		what = "held back, more of them"
	}
	l.tellOf(h, what)
	if isNew {
		l.observe(Observation{Kind: ObservedHold, Bridge: b.name, Op: "delete", Count: len(h.set)})
		l.opts.Log.Warn("deletions exceed what the guard permits", "bridge", b.name, "mode", b.guard.Mode,
			"hold", h.name(), "entries", len(h.set), "reason", why, "ends", h.ends())
	}
	if warns {
		h.free(now)
		l.holds = slices.DeleteFunc(l.holds, func(o *hold) bool { return o == h })
	}
}

// gather takes in what is pending. Of a group it is as many as were lost, those
// first that became surplus last; the others have been replaced and go.
func (h *hold) gather(now time.Time) {
	b, pending := h.ward, make(map[registry.Group][]*surplus)
	for s := range b.pending {
		pending[s.item.group] = append(pending[s.item.group], s)
	}
	for group, list := range pending {
		slices.SortFunc(list, (*surplus).compare)
		lost := 0
		if t := b.balance.deficits[group]; t != nil && t.counts() > 0 {
			lost = min(len(list), t.lost())
		}
		replaced := len(list) - lost
		for _, s := range list[:replaced] {
			b.permit(s)
		}
		for _, s := range list[replaced:] {
			h.set[s] = struct{}{}
			s.hold = h
			delete(b.pending, s)
		}
		b.balance.keep(group, lost, now)
	}
	h.id, h.approval = "", h.unconfirmed(now)
}

// open returns the hold that takes in what is pending, and whether it is new.
func (l *loop) open(b *ward, now time.Time) (*hold, bool) {
	if h := l.gathering(b, now); h != nil {
		return h, false
	}
	for _, o := range l.holds { // a source that goes on losing has not said the same for any time
		if o.ward == b && o.denied == "" {
			o.doubt(now)
		}
	}
	h := &hold{target: l.opts.Target, ward: b, since: now, set: make(map[*surplus]struct{})}
	h.doubt(now)
	l.holds = append(l.holds, h)
	return h, true
}

// gathering returns the hold of a ward that takes in further removals; nil where
// none does.
func (l *loop) gathering(b *ward, now time.Time) *hold {
	for _, h := range l.holds {
		if h.ward == b && h.denied == "" && now.Sub(h.since) < holdGather {
			return h
		}
	}
	return nil
}

// free lets the removals of a hold go ahead. Somebody vouches for them, so that
// what is left then is what later losses are measured by.
func (h *hold) free(now time.Time) {
	b := h.ward
	for s := range h.set {
		s.hold, s.permitted = nil, true
		b.balance.keep(s.item.group, -1, now)
	}
	clear(h.set)
	b.balance.forgive()
	b.base, _ = b.total(now)
}

// shrink takes a key out of a hold whose set changed by that. A denial was of
// the set as it was; what is left has to be confirmed from the start. It still
// is of that set where another replica leads by now.
func (l *loop) shrink(h *hold, s *surplus, now time.Time) {
	delete(h.set, s)
	s.hold, h.id, h.less = nil, "", true
	h.ward.balance.keep(s.item.group, -1, now)
	why := "nothing of it is surplus any more"
	if !l.acts() {
		why = "another replica leads by now"
	} else if h.denied != "" {
		l.tell(Event{Kind: EventHold, Bridge: h.ward.name, Subject: h.shown, What: "the set changed, so that the denial ended", Since: h.since})
		l.forget(recordDecisions, h.record)
		h.denied, h.since = "", now
		h.doubt(now)
	}
	if len(h.set) == 0 {
		l.end(h, why)
	}
}

// doubt makes a hold be confirmed from the start.
func (h *hold) doubt(now time.Time) {
	h.from, h.rechecked, h.dials = now, time.Time{}, h.dials[:0]
	for _, w := range h.ward.ways {
		h.dials = append(h.dials, w.known.Dials)
	}
}

// release ends a hold by letting its removals go ahead.
func (l *loop) release(h *hold, why string, now time.Time) {
	id := h.name() // so that it is known when the set is not
	for s := range h.set {
		s.released = "hold " + id + " ended: " + why
		l.agenda.touch(s.item, now)
	}
	h.free(now)
	l.end(h, why)
}

func (l *loop) end(h *hold, why string) {
	l.tell(Event{Kind: EventRelease, Bridge: h.ward.name, Subject: h.shown, What: "hold ended", Why: why, Since: h.since})
	l.holds = slices.DeleteFunc(l.holds, func(o *hold) bool { return o == h })
	l.observe(Observation{Kind: ObservedRelease, Bridge: h.ward.name, Op: "delete", Count: 1})
	l.opts.Log.Info("hold ended", "bridge", h.ward.name, "hold", h.shown, "reason", why)
}

// unconfirmed returns why no reading of the source confirms a hold, empty where
// one does. A source that shows nothing at all may be the one that is wrong.
// And of what no bridge claimed since the start, more than half is what a
// configuration would take away that was changed by mistake, which a source
// knows nothing of.
func (h *hold) unconfirmed(now time.Time) string {
	b := h.ward
	if b.unclaimed {
		total, lost := b.total(now)
		base := b.base.least(total)
		if gone := lost.size.add(h.held()); 2*gone.endpoints > base.endpoints || 2*gone.services > base.services {
			return "more than half of what was there is claimed by no bridge of this configuration"
		}
		return ""
	}
	if b.now().services == 0 {
		return "its source shows nothing of the bridge any more"
	}
	return ""
}

// held returns how much a hold keeps.
func (h *hold) held() size {
	groups := make(map[registry.Group]struct{})
	for s := range h.set {
		if t := h.ward.balance.deficits[s.item.group]; t != nil && t.has == 0 {
			groups[s.item.group] = struct{}{}
		}
	}
	return size{len(groups), len(h.set)}
}

// confirms returns when a hold ends because the source still says the same,
// and whether it said so over a new connection since the hold began. A reading
// that is younger than Settle does not confirm: it may be the first half of an
// answer.
func (h *hold) confirms() (at time.Time, fresh bool) {
	at, fresh = h.from.Add(h.ward.guard.Confirm), true
	for i, w := range h.ward.ways {
		if !w.complete() || w.known.Dials <= h.dials[i] {
			fresh = false
		}
		at = later(at, w.fresh.Add(h.ward.guard.Settle))
	}
	return at, fresh
}

// watch ends the holds whose time has come, and asks for fresh readings. It
// returns when it has to look again; the zero time where only an event helps.
func (l *loop) watch(now time.Time) time.Time {
	var next time.Time
	for _, h := range slices.Clone(l.holds) {
		at := l.watchOne(h, now)
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

func (l *loop) watchOne(h *hold, now time.Time) time.Time {
	if h.denied != "" || h.ward.guard.Confirm == 0 {
		return time.Time{}
	}
	before := h.approval
	if h.approval = h.unconfirmed(now); h.approval != before {
		l.tellOf(h, "held back still")
	}
	if h.approval != "" {
		return time.Time{}
	}
	at, fresh := h.confirms()
	if !fresh {
		return h.recheck(now)
	}
	if now.Before(at) {
		return at
	}
	if !l.leaveOut(h, now) {
		return now.Add(h.ward.guard.Confirm)
	}
	l.release(h, "the source still said so over a new connection", now)
	return time.Time{}
}

// leaveOut takes out of a hold what the source cannot tell of at the moment that
// it confirms the rest: that is judged anew once it is known. Where there is no
// rest, nothing was confirmed, and it reports false.
func (l *loop) leaveOut(h *hold, now time.Time) bool {
	var untold []*surplus
	for s := range h.set {
		if l.ignorance(s) != nil {
			untold = append(untold, s)
		}
	}
	if len(untold) == len(h.set) {
		h.doubt(now)
		return false
	}
	for _, s := range untold {
		l.shrink(h, s, now)
		l.pend(s)
	}
	return true
}

// recheck asks for a reading over a new connection once the hold is halfway to
// the time at which one would confirm it, and again after as long while there
// was none. It returns when to look again.
func (h *hold) recheck(now time.Time) time.Time {
	half := h.ward.guard.Confirm / 2
	if next := later(h.from, h.rechecked).Add(half); now.Before(next) {
		return next
	}
	h.rechecked = now
	for i, w := range h.ward.ways {
		if w.Recheck != nil && w.known.Dials <= h.dials[i] {
			w.Recheck()
		}
	}
	return now.Add(half)
}

// denied keeps a hold until its set changes.
func (l *loop) denied(h *hold, who string) {
	h.denied, h.record = who, setOf(h.name())
	l.tell(Event{Kind: EventDenied, Bridge: h.ward.name, Subject: h.name(), What: "hold denied", Who: who, Since: h.since, Release: h.ends()})
	l.opts.Log.Info("hold denied", "bridge", h.ward.name, "hold", h.name(), "who", who)
}

// find returns the hold of a set; nil where there is none.
func (l *loop) find(set string) *hold {
	for _, h := range l.holds {
		if setOf(h.name()) == set {
			return h
		}
	}
	return nil
}

// setOf returns the part of an id that is of the set alone. Decisions are about
// that: a bridge that starts may not know yet whose entries they are.
func setOf(id string) string { return id[strings.LastIndexByte(id, '-')+1:] }

// earlierSets is how many earlier sets of a hold are known.
const earlierSets = 20

// name returns the id of a hold. The part before the hyphen is that of the
// target and the bridge, which stays; the other is a hash of the set, so that
// what is decided is what was looked at.
func (h *hold) name() string {
	if h.id != "" {
		return h.id
	}
	sum := sha256.New()
	sum.Write([]byte(h.target + "\x00"))
	for _, s := range h.sorted() {
		sum.Write([]byte(s.item.group.String() + "\x00" + s.Key + "\x00"))
	}
	where := sha256.Sum256([]byte(h.target + "\x00" + h.ward.name))
	h.id = hex.EncodeToString(where[:3]) + "-" + hex.EncodeToString(sum.Sum(nil)[:6])
	if h.shown != "" && h.shown != h.id {
		h.earlier = append(h.earlier[max(0, len(h.earlier)-earlierSets+1):], Set{ID: h.shown, Deletions: h.size})
	}
	h.shown, h.size = h.id, len(h.set)
	return h.id
}

func (h *hold) sorted() []*surplus {
	list := make([]*surplus, 0, len(h.set))
	for s := range h.set {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *surplus) int {
		return cmp.Or(a.item.group.Compare(b.item.group), cmp.Compare(a.Key, b.Key))
	})
	return list
}

// report returns the hold as status shows it.
func (h *hold) report() Hold {
	out := Hold{ID: h.name(), Bridge: h.ward.name, Reason: h.why(), Since: h.since, Release: h.ends(), Earlier: slices.Clone(h.earlier)}
	var group registry.Group
	for _, s := range h.sorted() {
		if s.item.group != group {
			group = s.item.group
			out.Groups = append(out.Groups, group)
		}
		out.Entries = append(out.Entries, group.String()+" "+s.Key)
	}
	return out
}

// why returns the reason that was given, and whether it was of more.
func (h *hold) why() string {
	if h.less {
		return h.reason + " when it was opened; some of that is no longer to be deleted"
	}
	return h.reason
}

func (h *hold) ends() string {
	switch {
	case h.ward.guard.Mode == GuardWarn:
		return "at once: guard.mode is warn"
	case h.denied != "":
		return "by approval alone, or when its entries change: denied by " + h.denied
	case h.ward.guard.Confirm == 0:
		return "by approval"
	case h.approval != "":
		return "by approval alone: " + h.approval
	}
	return "by approval, or if the source still says so over a new connection " + h.ward.guard.Confirm.String() + " after it began"
}
