package admin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/audit"
)

// UserHeader is where a caller says who it is. Nobody checks that: it is for
// the record, beside the address that the word came from.
const UserHeader = "X-Xds-Bridge-User"

// A word is what a person may say about a hold.
type word struct {
	action, result, after string
	act                   func(loop Loop, ctx context.Context, id, who string) error
}

// decide passes a word on a hold to the loop that has it, and keeps who gave it.
func (s *Server) decide(w word) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		id, who := r.PathValue("id"), who(r)
		t, hold, err := s.holder(r.Context(), id)
		if err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), ask)
			defer cancel()
			err = w.act(t.Loop, ctx, id, who)
		}
		entry := audit.Entry{
			Who: who, Action: w.action, Owner: s.owner(), Target: t.Name, Bridge: hold.Bridge, Subject: id,
			Count: len(hold.Entries), Before: hold.Entries, After: w.after,
		}
		if err != nil {
			entry.After, entry.Error = "nothing changed", err.Error()
		}
		s.opts.Audit.Record(r.Context(), entry)
		switch {
		case err == nil:
			reply(rw, http.StatusOK, Decision{ID: id, Target: t.Name, Result: w.result})
		case errors.Is(err, bridge.ErrNoHold):
			problem(rw, http.StatusNotFound, "no such hold: it has ended, or its entries changed and so did its id; xds-bridge holds lists what is held now")
		case errors.Is(err, context.DeadlineExceeded):
			problem(rw, http.StatusGatewayTimeout, err.Error())
		default:
			problem(rw, http.StatusConflict, err.Error())
		}
	}
}

// who returns who a request says it is from, and from where it came.
func who(r *http.Request) string {
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

// holder returns a hold and the target whose deletions it keeps back.
func (s *Server) holder(ctx context.Context, id string) (Target, bridge.Hold, error) {
	for _, t := range s.targets() {
		if s.alive(ctx, t) != nil {
			continue
		}
		list, err := t.Loop.Holds(ctx)
		if err != nil {
			continue
		}
		if i := slices.IndexFunc(list, func(h bridge.Hold) bool { return h.ID == id }); i >= 0 {
			return t, list[i], nil
		}
	}
	return Target{}, bridge.Hold{}, bridge.ErrNoHold
}
