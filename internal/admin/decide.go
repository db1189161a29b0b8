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

// UserHeader is where a caller says who it is. Nobody checks that: it is
// recorded beside the address of the caller.
const UserHeader = "X-Xds-Bridge-User"

// A decisionKind is what a person may decide about a hold.
type decisionKind struct {
	action, result, after string
	act                   func(loop Loop, ctx context.Context, id, who string) error
}

// decide passes a decision on a hold to the loop that has it, and records who made it.
func (s *Server) decide(w decisionKind) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		id, who := r.PathValue("id"), caller(r)
		t, hold, err := s.findHold(r.Context(), id)
		if err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
			defer cancel()
			err = w.act(t.Loop, ctx, id, who)
		}
		d := Decision{ID: id, Target: t.Name, Bridge: hold.Bridge, Count: hold.Count, Result: w.result, Recorded: err == nil}
		if errors.Is(err, bridge.ErrUnrecorded) {
			d.Why = err.Error()
		}
		s.opts.Audit.Record(r.Context(), s.auditEntry(w, who, hold, d, err))
		switch {
		case d.Recorded, d.Why != "":
			reply(rw, http.StatusOK, d)
		case errors.Is(err, bridge.ErrNoHold):
			replyProblem(rw, http.StatusNotFound, s.explainMissingHold(r.Context(), id))
		case errors.Is(err, context.DeadlineExceeded):
			replyProblem(rw, http.StatusGatewayTimeout, err.Error())
		default:
			replyProblem(rw, http.StatusConflict, err.Error())
		}
	}
}

// entry is what the audit keeps of a decision and its result.
func (s *Server) auditEntry(w decisionKind, who string, hold bridge.Hold, d Decision, err error) audit.Entry {
	e := audit.Entry{
		Who: who, Action: w.action, Owner: s.current().owner, Target: d.Target, Bridge: d.Bridge, Subject: d.ID,
		Count: d.Count, Before: hold.Entries, After: w.after,
	}
	if err != nil {
		e.Error = err.Error()
	}
	if err != nil && d.Why == "" {
		e.After = "nothing changed"
	}
	return e
}

// explainMissingHold says why there is no hold of an id, and which may have been meant. That its entries changed is known only of one that was shown.
func (rep *reporter) explainMissingHold(ctx context.Context, id string) string {
	events := rep.opts.Events.of(map[string]bool{id: true})
	if i := slices.IndexFunc(events, func(e Event) bool { return e.Kind == bridge.EventRelease }); i >= 0 {
		return fmt.Sprintf("no such hold: %s ended at %s: %s", id, events[i].Time.UTC().Format(time.RFC3339), events[i].Why)
	}
	where, _, _ := strings.Cut(id, "-")
	var now []string
	var ids []alias
	for _, h := range holdsOf(rep.statuses(ctx)) {
		ids = append(ids, alias{h.ID, h.ID})
		if at, _, _ := strings.Cut(h.ID, "-"); at == where {
			now = append(now, fmt.Sprintf("bridge %s now has %s held in %s; look at xds-bridge holds, then approve or deny %s",
				h.Bridge, registry.Counted(h.Count, "deletion", "deletions"), h.Target, h.ID))
		}
	}
	near := nearest(id, ids)
	switch {
	case len(events) > 0 && len(now) > 0:
		return "hold " + id + " is no more, since its entries changed: " + strings.Join(now, "; ")
	case len(events) == 0 && len(near) > 0:
		return "no such hold: " + id + didYouMean(near) + " xds-bridge holds shows what it is"
	case len(now) > 0:
		return "no such hold: " + id + "; " + strings.Join(now, "; ")
	}
	return "no such hold: " + id + " has ended, or was never one; xds-bridge holds lists what is held now"
}

// who returns who a request says it is from, and from where it came.
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
