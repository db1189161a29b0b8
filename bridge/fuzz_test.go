package bridge_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"
)

// FuzzWords shows that no text among the records of an owner lets a hold go,
// unless it is an approval of exactly that one, nor shows a hold that nobody
// has.
func FuzzWords(f *testing.F) {
	f.Add("", `{"approved":true,"who":"ann","at":"2000-01-01T00:00:00Z"}`)
	f.Add("", `{"approved":true,"who":"ann","at":"9999-01-01T00:00:00Z"}`)
	f.Add("", `{"approved":"yes"}`)
	f.Add("another", `{"approved":true,"who":"ann","at":"2000-01-01T00:10:00Z"}`)
	f.Add("", `{"approved":false,"who":"\u001b[2J"}`)
	f.Add("x", `[[[`)
	f.Fuzz(func(t *testing.T, name, text string) {
		synctest.Test(t, func(t *testing.T) {
			r, start := recorded(t)
			s := start().has(fleet(20, 2)...).in(10 * time.Minute)
			s.loses(0, 10).in(0)
			id := s.hold().ID
			for _, kind := range []string{"decisions", "holds"} {
				if err := r.Record(t.Context(), kind, name, text); err != nil {
					t.Fatal(err)
				}
				if err := r.Record(t.Context(), kind, id, text); err != nil {
					t.Fatal(err)
				}
			}
			var word struct {
				Approved bool      `json:"approved"`
				Who      string    `json:"who"`
				At       time.Time `json:"at"`
			}
			good := json.Unmarshal([]byte(text), &word) == nil && word.Approved
			s.in(10 * time.Second)
			if good {
				s.noHold()
				return
			}
			if now := s.hold(); now.ID != id {
				t.Errorf("%+v", now)
			}
			s.holdsN(40)
		})
	})
}
