package bridge

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A way is what the loop knows of one of its bridges.
type way struct {
	Bridge
	index    int
	known    registry.Certainty
	toldAt   time.Time // when the source last told of everything anew
	services map[registry.Name]*service
	invalid  int                        // how many of them cannot be projected
	moved    map[registry.Name]struct{} // services, and scopes, that status has to show anew
	some     string                     // an example of the scopes that are unknown; empty: none are
	wide     string                     // likewise, of those that are no one service

	reasons  map[Reason]int    // how many services status shows of each; guarded by view.mu, as is what follows
	unknowns map[string]string // why, by scope
}

// A service is what the loop knows of a service beside its entries.
type service struct {
	reason Reason // as projecting it told; empty where its entries tell
	detail string
	gone   bool
	left   map[registry.Group]int // how many surplus keys there are that it claimed last
}

var errUnsynced = errors.New("the source has not told of everything yet")

// complete reports whether the source told of everything and still does.
func (w *way) complete() bool { return w.known.Synced && w.known.Stale == nil }

// ignorance returns why nothing may be concluded about a service.
func (w *way) ignorance(name registry.Name) error {
	if !w.known.Synced {
		return errUnsynced
	}
	return cannotTell(w.known.Of(name))
}

func cannotTell(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the source cannot tell: %w", err)
}

// ignoranceOf returns why nothing may be concluded about an entry of ours that
// this bridge may have written and nobody is known to have claimed. A source that
// is not complete may claim any. One that cannot tell of some services, or has some
// that cannot be projected, may claim what came from these, by what the entry says
// of itself.
func (w *way) ignoranceOf(e registry.Entry) error {
	switch {
	case !w.known.Synced:
		return fmt.Errorf("bridge %s: %w", w.Name, errUnsynced)
	case w.known.Stale != nil:
		return fmt.Errorf("bridge %s: %w", w.Name, w.known.Stale)
	case len(w.known.Unknown) == 0 && w.invalid == 0:
		return nil
	}
	name := w.origin(e)
	if s := w.services[name]; w.invalid > 0 && (name == "" || s != nil && s.reason == ReasonInvalid) {
		return fmt.Errorf("bridge %s has %d services that are invalid", w.Name, w.invalid)
	}
	scope := w.some
	if name != "" {
		scope = w.wide
		if _, covered := registry.Covering(w.known.Unknown, name); covered {
			scope = string(name)
		}
	}
	if scope == "" {
		return nil
	}
	err, _ := registry.Covering(w.known.Unknown, registry.Name(scope))
	return fmt.Errorf("bridge %s cannot tell of %s: %w", w.Name, scope, err)
}

// origin returns the service that an entry tells that it came from; empty where it
// tells of none.
func (w *way) origin(e registry.Entry) registry.Name {
	if w.Trace == nil {
		return ""
	}
	return w.Trace.Origin(e)
}

// exemplify picks the examples anew, the same ones for the same scopes.
func (w *way) exemplify() {
	w.some, w.wide = "", ""
	for scope := range w.known.Unknown {
		if w.some == "" || scope < w.some {
			w.some = scope
		}
		if (w.wide == "" || scope < w.wide) && w.Trace != nil && !w.Trace.Service(scope) {
			w.wide = scope
		}
	}
}

// keeps returns the policy that forbids deletions; empty where none does.
func (w *way) keeps() Policy {
	if w.Policy == PolicySync {
		return ""
	}
	return w.Policy
}

// learn takes in how far the source may be relied on. It reports whether that may
// let deletions go that could not before, and whether what is complete settles
// anew: after a source was stale and when it told of everything anew, unless it
// does so all the time.
func (w *way) learn(d registry.Delta, now time.Time) (mayGo, fresh bool) {
	k, before, wasComplete := d.Certainty, w.known, w.complete()
	w.known = k
	again := k.Dials != before.Dials || k.Epoch != before.Epoch && now.Sub(w.toldAt) >= w.Guard.Settle
	fresh = w.complete() && (!wasComplete || again)
	if k.Epoch != before.Epoch {
		w.toldAt = now
	}
	if len(d.Scopes) > 0 {
		w.exemplify()
	}
	return w.complete() != wasComplete || len(d.Scopes) > 0, fresh
}

// evidence returns how a row that changed is known.
func (w *way) evidence(row registry.Row) plan.Evidence {
	if row.Found || !w.complete() {
		return plan.Found
	}
	return plan.Told
}

// project returns what a service claims, and why it claims nothing where that
// is so. An error means that it cannot be told.
func (w *way) project(s *registry.Service) ([]registry.Entry, service, error) {
	if s == nil {
		return nil, service{gone: true}, nil
	}
	entries, err := w.Project(s)
	reason, detail := Reason(""), ""
	if left, ok := errors.AsType[*registry.LeftOut](err); ok {
		reason, detail, err = Reason(left.All), left.Error(), nil
	}
	switch {
	case err != nil:
		return nil, service{reason: ReasonInvalid, detail: err.Error()}, err
	case len(entries) == 0:
		return nil, service{reason: cmp.Or(reason, ReasonEmpty), detail: cmp.Or(detail, emptiness(s))}, nil
	}
	return entries, service{reason: reason, detail: detail}, nil
}

func emptiness(s *registry.Service) string {
	for _, e := range s.Endpoints {
		if e.Health.Offered() {
			return "nothing to write: no service key"
		}
	}
	return "no offered endpoint"
}

// leave records that a service claimed n more, or fewer, of the surplus keys of
// a group, and forgets one that is gone with all it left.
func (w *way) leave(name registry.Name, group registry.Group, n int) {
	w.move(name)
	s := w.services[name]
	if s == nil {
		s = &service{gone: true}
		w.services[name] = s
	}
	if s.left == nil {
		s.left = make(map[registry.Group]int, 1)
	}
	if s.left[group] += n; s.left[group] <= 0 {
		delete(s.left, group)
	}
	w.forget(name)
}

// forget forgets a service that is gone with all it left.
func (w *way) forget(name registry.Name) {
	if s := w.services[name]; s.gone && len(s.left) == 0 {
		delete(w.services, name)
	}
}

// move has status show a service anew, or a scope.
func (w *way) move(name registry.Name) { w.moved[name] = struct{}{} }

// moveScopes has status show scopes anew, and the services that they cover.
func (w *way) moveScopes(scopes map[string]struct{}) {
	wide := false
	for scope := range scopes {
		w.move(registry.Name(scope))
		wide = wide || strings.HasSuffix(scope, "*")
	}
	if !wide {
		return
	}
	for name := range w.services {
		if _, covered := registry.Covering(scopes, name); covered {
			w.move(name)
		}
	}
}

// note records what a service is now and reports whether its text is new.
func (w *way) note(name registry.Name, next service) bool {
	w.move(name)
	s := w.services[name]
	if s == nil {
		if next.gone {
			return false
		}
		s = &service{}
		w.services[name] = s
	}
	if s.reason == ReasonInvalid {
		w.invalid--
	}
	if next.reason == ReasonInvalid {
		w.invalid++
	}
	isNew := s.reason != next.reason || s.detail != next.detail
	s.reason, s.detail, s.gone = next.reason, next.detail, next.gone
	w.forget(name)
	return isNew
}
