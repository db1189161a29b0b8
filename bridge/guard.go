package bridge

import (
	"cmp"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A surplus is a key of ours that the target holds and nobody claims. It is a
// withdrawal where the source took the claim back in so many words, and a
// leftover otherwise.
type surplus struct {
	plan.Surplus
	item      *item
	since     time.Time // when it was first seen
	blind     bool      // at the last look the source could not tell of it, or it stayed whatever that says
	settled   bool      // a leftover that waited long enough
	permitted bool      // as far as the share of removals goes
	hold      *hold
	released  string // how the hold ended that let it go; empty: none did
}

func (s *surplus) leftover() bool { return !s.Known || s.How == plan.Found }

// A verdict says whether a surplus key may go; where it may not, why, and
// from when on it may if time alone is missing.
type verdict struct {
	reason Reason // empty: it may go
	detail string
	at     time.Time
}

// barred applies the rules that hold whatever the guard is: the policy, and
// that nothing goes on ignorance.
func (l *loop) barred(s *surplus, now time.Time) verdict {
	if why := l.stays(s); why != "" {
		s.blind = true
		return verdict{reason: ReasonReadOnly, detail: why}
	}
	keeps := l.ward(s).keeps
	for origin := range l.planner.Losers(s.item.group, s.Key) {
		keeps = cmp.Or(keeps, l.wards[origin.Bridge].keeps)
	}
	if keeps != "" {
		return verdict{reason: ReasonReadOnly, detail: "policy " + string(keeps) + " keeps what is no longer claimed"}
	}
	if err := l.ignorance(s); err != nil {
		s.blind = true
		return verdict{reason: ReasonUnknown, detail: err.Error()}
	}
	if s.blind && s.leftover() {
		s.since, s.settled = now, false // it settles anew
	}
	s.blind = false
	return verdict{}
}

// unjudged returns how many endpoints of a group the target holds that a ward is
// still to judge.
func (l *loop) unjudged(b *ward, group registry.Group) (n int) {
	it := l.agenda.items[group]
	if it == nil {
		return 0
	}
	for found := range l.planner.Surplus(group) {
		s := it.surplus[found.Key]
		if s == nil {
			s = &surplus{Surplus: found, item: it}
		}
		if registry.IsEndpoint(s.Key) && l.ward(s) == b && s.hold == nil && !s.permitted && l.stays(s) == "" {
			n++
		}
	}
	return n
}

// stays returns why a key stays whatever the sources say: a bridge wrote it
// that is none of this loop, or another replica may claim it, of whose services
// nothing is claimed here. Empty where it is a surplus like any other.
func (l *loop) stays(s *surplus) string {
	if s.Known {
		return ""
	}
	if l.opts.Differ != nil {
		if why := l.opts.Differ(); why != "" && l.planner.Endpoints(s.item.group) == 0 {
			return why
		}
	}
	if l.opts.Stays == nil {
		return ""
	}
	return l.opts.Stays(registry.Entry{Group: s.item.group, Key: s.Key, Value: s.Value})
}

// ignorance returns why it may not be believed that a key is surplus: because
// of any service that claimed it, or of any bridge where none is known.
func (l *loop) ignorance(s *surplus) error {
	for origin := range l.planner.Losers(s.item.group, s.Key) {
		if err := l.ways[origin.Bridge].ignorance(origin.Service); err != nil {
			return err
		}
	}
	if s.Known {
		return nil
	}
	e := registry.Entry{Group: s.item.group, Key: s.Key, Value: s.Value}
	for _, w := range l.ways {
		if err := w.ignoranceOf(e); err != nil {
			return err
		}
	}
	return nil
}

// judge applies every rule but that of the last endpoint. What is no endpoint
// counts for no share. What endpoints refer to settles as a leftover does, for
// whoever still reads what it was told of before.
func (l *loop) judge(s *surplus, now time.Time) verdict {
	if v := l.barred(s, now); v.reason != "" {
		return v
	}
	b := l.ward(s)
	if b.guard.Mode == GuardOff {
		return verdict{}
	}
	if (s.leftover() || registry.IsPart(s.Key)) && !s.settled {
		if v := l.settling(b, s, now); v.reason != "" {
			return v
		}
		s.settled = true
	}
	if !registry.IsEndpoint(s.Key) {
		return verdict{}
	}
	return l.share(b, s, now)
}

func (l *loop) settling(b *ward, s *surplus, now time.Time) verdict {
	if !s.Known && len(l.unread) > 0 && b.guard.Share > 0 {
		return verdict{reason: ReasonWaiting, detail: "the target has not been read in full yet"}
	}
	if at := b.settles(s, now); now.Before(at) {
		return verdict{reason: ReasonWaiting, detail: "a leftover settles for " + b.patience(s, now).String(), at: at}
	}
	return verdict{}
}

func (l *loop) share(b *ward, s *surplus, now time.Time) verdict {
	if s.hold == nil && !s.permitted {
		if why := l.tooMany(b, s, now); why != "" {
			l.hold(b, why, now)
		} else {
			b.permit(s)
		}
	}
	if s.hold != nil {
		return verdict{reason: ReasonHeld, detail: s.hold.reason}
	}
	return verdict{}
}

// tooMany says why the removals that are pending are held, empty where they are
// not. What is lost while a hold still gathers is a piece of the same loss: it
// does not become a small one by what is held of it already.
func (l *loop) tooMany(b *ward, s *surplus, now time.Time) string {
	if why := b.excess(now); why != "" {
		return why
	}
	if h := l.gathering(b, now); h != nil {
		if t := b.balance.deficits[s.item.group]; t != nil && t.counts() > 0 {
			return h.reason
		}
	}
	return ""
}

// last returns which withdrawal of a group waits because nothing of ours
// would be left, and until when; nil where none does.
func (l *loop) last(it *item, now time.Time) (*surplus, time.Time) {
	var last *surplus
	for _, s := range it.surplus {
		if !registry.IsEndpoint(s.Key) {
			continue
		}
		if last == nil || s.since.After(last.since) || s.since.Equal(last.since) && s.Key > last.Key {
			last = s
		}
	}
	if last == nil {
		return nil, now
	}
	b := l.ward(last)
	at := last.since.Add(b.guard.LastEndpoint)
	if b.guard.Mode == GuardOff || !now.Before(at) {
		return nil, now
	}
	return last, at
}

// account brings what is known of the surplus keys of a group up to date.
func (l *loop) account(it *item, now time.Time) {
	var next map[string]*surplus
	if !l.acts() {
		l.forgetSurplus(it, now)
		return
	}
	for found := range l.planner.Surplus(it.group) {
		s := it.surplus[found.Key]
		if s == nil || s.Surplus != found {
			s = l.missing(it, found, now)
		} else {
			delete(it.surplus, found.Key)
		}
		if next == nil {
			next = make(map[string]*surplus)
		}
		next[found.Key] = s
	}
	for _, s := range it.surplus {
		l.wanted(s, now)
	}
	it.surplus = next
	l.weigh(it, now)
	l.replace(it, now)
	if len(next) > 0 {
		l.owing[it] = struct{}{}
	} else {
		delete(l.owing, it)
	}
}

// weigh brings the balance of what nobody is known to have claimed up to date.
// It is measured by what the target held before anything was written to it:
// what was replaced while nobody looked is no loss either.
func (l *loop) weigh(it *item, now time.Time) {
	unknown, has := false, l.planner.Endpoints(it.group)
	for _, s := range it.surplus {
		switch {
		case s.Known || !registry.IsEndpoint(s.Key):
		case l.stays(s) != "":
			has++
		default:
			unknown = true
		}
	}
	b := &l.strict.balance
	if t := b.deficits[it.group]; t != nil {
		b.change(it.group, t.has, has, true, now)
	} else if unknown {
		b.change(it.group, it.had, has, true, now)
	}
}

// replace lets as many of what is held in a group go as have been replaced.
func (l *loop) replace(it *item, now time.Time) {
	held := make(map[*ward][]*surplus)
	for _, s := range it.surplus {
		if s.hold != nil {
			held[s.hold.ward] = append(held[s.hold.ward], s)
		}
	}
	for b, list := range held {
		t := b.balance.deficits[it.group]
		if t == nil || t.spare() == 0 {
			continue
		}
		slices.SortFunc(list, (*surplus).compare)
		for _, s := range list[:t.spare()] {
			l.shrink(s.hold, s, now)
			b.permit(s)
		}
	}
}

// compare orders what became surplus first before what did later.
func (s *surplus) compare(o *surplus) int {
	return cmp.Or(s.since.Compare(o.since), cmp.Compare(s.Key, o.Key))
}

// forgetSurplus drops what is known of the surplus keys of a group: another
// replica judges them.
func (l *loop) forgetSurplus(it *item, now time.Time) {
	for _, s := range it.surplus {
		l.wanted(s, now)
	}
	it.surplus = nil
	delete(l.owing, it)
}

// missing takes a key in that became surplus.
func (l *loop) missing(it *item, found plan.Surplus, now time.Time) *surplus {
	s := &surplus{Surplus: found, item: it, since: now}
	l.pend(s)
	if s.Known && s.leftover() {
		b := l.ward(s)
		b.missing.add(s.place(), b.guard.Window, now)
	}
	if s.Known {
		l.ways[s.Origin.Bridge].owe(s.Origin.Service, 1)
	}
	return s
}

// pend counts a key among those that are about to go, unless nothing lets it.
func (l *loop) pend(s *surplus) {
	if b := l.ward(s); b.keeps == "" && registry.IsEndpoint(s.Key) && s.hold == nil && !s.permitted && l.stays(s) == "" {
		b.pending[s] = struct{}{}
	}
}

// wanted forgets a key that is surplus no longer.
func (l *loop) wanted(s *surplus, now time.Time) {
	delete(l.ward(s).pending, s)
	if _, claimed := l.planner.Winner(s.item.group, s.Key); claimed { // and not deleted by now
		if s.hold != nil {
			s.hold.doubt(now) // the source was wrong about a part of it
		}
		l.cameBack(s.place(), now)
	}
	if s.hold != nil {
		l.shrink(s.hold, s, now)
	}
	if s.Known {
		l.ways[s.Origin.Bridge].owe(s.Origin.Service, -1)
	}
}
