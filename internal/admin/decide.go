package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/audit"
	"github.com/xds-bridge/xds-bridge/registry"
)

// UserHeader is the header with the name of the caller. The name is not verified. It is
// recorded next to the address of the caller.
const UserHeader = "X-Xds-Bridge-User"

// A decisionKind is the approval or the denial of a hold.
type decisionKind struct {
	action, result string
	effect         string // for the audit log
	decide         func(loop Loop, ctx context.Context, id, who string) error
}

// decide returns the handler of a decision. It passes the decision to the loop with the
// hold, and records who made it.
func (s *Server) decide(kind decisionKind) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id, who := r.PathValue("id"), caller(r)
		t, hold, err := s.findHold(r.Context(), id)
		if err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
			defer cancel()
			err = kind.decide(t.Loop, ctx, id, who)
		}
		d := Decision{
			ID: id, Target: t.Name, Bridge: hold.Bridge, Count: hold.Count, Result: kind.result, Recorded: err == nil,
		}
		if errors.Is(err, bridge.ErrUnrecorded) {
			d.Why = err.Error()
		}
		s.opts.Audit.Record(r.Context(), s.auditEntry(kind, who, hold, d, err))
		switch {
		case d.Recorded, d.Why != "":
			reply(w, http.StatusOK, d)
		case errors.Is(err, bridge.ErrNoHold):
			replyProblem(w, http.StatusNotFound, s.explainMissingHold(r.Context(), id))
		case errors.Is(err, context.DeadlineExceeded):
			replyProblem(w, http.StatusGatewayTimeout, err.Error())
		default:
			replyProblem(w, http.StatusConflict, err.Error())
		}
	}
}

// auditEntry returns the audit entry of a decision and its result.
func (s *Server) auditEntry(kind decisionKind, who string, hold bridge.Hold, d Decision, err error) audit.Entry {
	e := audit.Entry{
		Who: who, Action: kind.action, Owner: s.current().owner, Target: d.Target, Bridge: d.Bridge, Subject: d.ID,
		Count: d.Count, Before: hold.Entries, After: kind.effect,
	}
	if err != nil {
		e.Error = err.Error()
	}
	if err != nil && d.Why == "" {
		e.After = "nothing changed"
	}
	return e
}

// explainMissingHold returns why there is no hold with an id, and similar ids. It says that
// the entries of the hold changed only if the hold was shown before.
func (rep *reporter) explainMissingHold(ctx context.Context, id string) string {
	events := rep.opts.Events.of(map[string]bool{id: true})
	if i := slices.IndexFunc(events, func(e Event) bool { return e.Kind == bridge.EventRelease }); i >= 0 {
		return fmt.Sprintf("no such hold: %s ended at %s: %s", id, events[i].Time.UTC().Format(time.RFC3339), events[i].Why)
	}
	place, _, _ := strings.Cut(id, "-") // the same for all holds of a bridge in a target
	var present []string
	var ids []alias
	for _, h := range holdsOf(rep.statuses(ctx)) {
		ids = append(ids, alias{h.ID, h.ID})
		if p, _, _ := strings.Cut(h.ID, "-"); p == place {
			present = append(present, fmt.Sprintf(
				"bridge %s now has %s held in %s; see xds-bridge holds, then approve or deny %s",
				h.Bridge, registry.Counted(h.Count, "deletion", "deletions"), h.Target, h.ID))
		}
	}
	near := nearest(id, ids)
	switch {
	case len(events) > 0 && len(present) > 0:
		return "hold " + id + " no longer exists, because its entries changed: " + strings.Join(present, "; ")
	case len(events) == 0 && len(near) > 0:
		return "no such hold: " + id + didYouMean(near) + " See xds-bridge holds"
	case len(present) > 0:
		return "no such hold: " + id + "; " + strings.Join(present, "; ")
	}
	return "no such hold: " + id + " has ended or never existed; see xds-bridge holds"
}

// caller returns the name of the caller in UserHeader, and its address.
func caller(r *http.Request) string {
	name := strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, r.Header.Get(UserHeader))
	if name == "" {
		name = "somebody"
	}
	return strings.ToValidUTF8(name[:min(len(name), 128)], "") + " (" + r.RemoteAddr + ")"
}

// findHold returns the hold with an id and its target. It returns bridge.ErrNoHold if no
// loop that answers has one.
func (rep *reporter) findHold(ctx context.Context, id string) (Target, bridge.Hold, error) {
	targets := rep.current().targets
	for i, err := range rep.askLoops(ctx, targets) {
		t := targets[i]
		if err != nil {
			continue
		}
		list := t.Loop.Status().Holds
		if at := slices.IndexFunc(list, func(h bridge.Hold) bool { return h.ID == id }); at >= 0 {
			return t, list[at], nil
		}
	}
	return Target{}, bridge.Hold{}, bridge.ErrNoHold
}
