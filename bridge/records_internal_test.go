package bridge

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// picky is a keeper that cannot keep what is under one name.
type picky struct {
	keeper
	name string
	err  error
}

func (p *picky) Record(ctx context.Context, kind, name, text string) error {
	if name == p.name {
		return p.err
	}
	return p.keeper.Record(ctx, kind, name, text)
}

func TestRecords_FailureOfOne(t *testing.T) {
	down, tooLarge := errors.New("connection closed"), registry.ErrRefused
	for name, err := range map[string]error{"fails": down, "is refused": tooLarge} {
		t.Run("one that "+name+" costs itself", func(t *testing.T) {
			s := &picky{keeper{records: make(map[string]map[string]string)}, "a", err}
			r := &records{reads: true, stores: true, pending: make(map[recordName]record)}
			r.keep(recordDecisions, "a", decision{Who: "ann"})
			r.keep(recordDecisions, "b", decision{Who: "bob"})
			now := time.Unix(0, 0)
			for range 3 { // it is tried again, and keeps no other waiting
				c, failure := syncRecords(t.Context(), s, r.startPending(), false)
				if !errors.Is(failure, err) || c.decisions["b"].Who != "bob" || c.holds == nil {
					t.Fatalf("consult() = %+v, %v, want the decision of bob and %v", c, failure, err)
				}
				r.callDone(outcome{consulted: c, err: failure}, now)
			}
			waiting := recordName{recordDecisions, "a"}
			if len(r.pending) != 1 || r.pending[waiting].text == "" || r.unstored(waiting) != errors.Is(err, down) {
				t.Errorf("pending = %+v, unstored(a) = %v", r.pending, r.unstored(waiting))
			}
			if want := now.Add(recordsEvery); !r.next().Equal(want) {
				t.Errorf("next() = %v, want %v", r.next(), want)
			}
		})
	}
	t.Run("a text that is no record is named", func(t *testing.T) {
		s := &keeper{records: map[string]map[string]string{recordGuard: {"x-00": "no JSON", "x-01": "[]"}}}
		c, err := syncRecords(t.Context(), s, nil, true)
		if _, read := c.guards["x-01"]; !read || !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "x-00") {
			t.Errorf("consult() = %+v, %v, want x-01 and an error that names x-00", c.guards, err)
		}
	})
}
