package bridge_test

import (
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/registry"
)

// What was lost counts until it has been judged, however long that takes and
// whatever is decided of other removals meanwhile.
func TestWhatWasNotJudgedYetIsNotForgotten(t *testing.T) {
	all := fleet(100, 2)
	stories(t, map[string]func(*testing.T){
		"an approval is of its own hold, not of what settles beside it": func(t *testing.T) {
			hours(t)
			s := standard(t, 100)
			s.loses(0, 40).in(time.Minute)
			h := s.hold()
			s.dials(all[40:50]...).in(20 * time.Second) // it restarts, and shows a tenth
			s.approves(h.ID, "ann")
			s.in(2 * time.Hour).holdsN(120).hold()
		},
		"a reading that confirms a hold does not confirm what it is the first to lack": func(t *testing.T) {
			s := standard(t, 100)
			s.loses(0, 40).in(9*time.Minute + 30*time.Second)
			s.dials(all[40:50]...).in(5 * time.Minute)
			if n := len(s.target.Entries()); n < 120 {
				t.Errorf("%d entries are left", n)
			}
			s.hold()
		},
		"a source that is away for longer than the window": func(t *testing.T) {
			s := standard(t, 100)
			s.dials(all[:10]...).in(30 * time.Second)
			s.table().Stale(errLost)
			s.in(70 * time.Minute)
			s.dials(all[:10]...).in(5 * time.Minute).holdsN(200).hold()
		},
		"a target that is away for longer than the window": func(t *testing.T) {
			hours(t)
			s := standard(t, 100)
			s.fail(func(memory.Op, registry.Group) error { return errDown })
			s.in(10 * time.Minute)
			s.dials(all[:10]...).in(70 * time.Minute)
			s.fail(nil)
			s.in(5 * time.Minute).holdsN(200).hold()
		},
		"a source that flaps for so long that what is missing settles for the window": func(t *testing.T) {
			hours(t)
			s := standard(t, 100)
			s.dials(all[:80]...).in(20 * time.Second)
			s.table().Stale(errLost)
			s.in(40 * time.Minute)
			s.has(all...).in(time.Second)
			s.has(all[:10]...).in(59 * time.Minute).holdsN(200)
			s.in(2 * time.Hour).holdsN(200).hold()
		},
		"a replica that takes over a hold that is older than the window holds the same": func(t *testing.T) {
			s, e := elected(t, standby(1), bridge.DefaultGuard())
			for _, sv := range all {
				for _, e := range sv.Endpoints {
					s.holding(mine(string(sv.Name), e.Address()))
				}
			}
			s.starts().has(all...).in(10 * time.Minute)
			s.loses(10, 90).in(2 * time.Hour) // held by the other
			e.set(leader(2))
			s.in(5 * time.Minute).holdsN(200).hold()
		},
		"a replica that leads again takes over what was lost meanwhile": func(t *testing.T) {
			s, e := elected(t, leader(1), bridge.DefaultGuard())
			s.starts().has(fleet(100, 1)...).in(20 * time.Minute)
			e.set(standby(2))
			for _, sv := range fleet(100, 6) {
				for _, e := range sv.Endpoints {
					s.target.Set(mine(string(sv.Name), e.Address()))
				}
			}
			s.has(fleet(100, 6)...).in(10 * time.Minute)
			s.has(fleet(100, 1)...).in(2 * time.Hour) // held by the other
			e.set(leader(3))
			s.in(5 * time.Minute).holdsN(600).hold()
		},
		"what settled before its source was away settles anew": func(t *testing.T) {
			s := standard(t, 100)
			s.fail(func(memory.Op, registry.Group) error { return errDown })
			s.has(all[1:]...).in(2 * time.Minute)
			s.fail(failing(memory.OpWrite, errDown))
			s.in(2 * time.Minute).table().Stale(errLost)
			s.in(time.Minute).fail(nil)
			s.in(time.Minute).dials(all[1:]...).in(50 * time.Second).holdsN(200)
			s.in(2 * time.Minute).holdsN(198)
		},
		"a source that can report nothing that is held confirms nothing": func(t *testing.T) {
			s := standard(t, 100)
			s.loses(0, 40).in(9 * time.Minute)
			s.table().Unknown("*", errLost)
			s.dials(all[40:]...).in(10 * time.Minute).holdsN(200)
			s.table().Unknown("*", nil)
			s.in(59 * time.Second).holdsN(200).hold()
			s.in(12 * time.Second).holdsN(120)
		},
		"what the source cannot report when it confirms a hold is held on": func(t *testing.T) {
			s := standard(t, 100)
			s.loses(0, 40).in(9 * time.Minute)
			for _, scope := range []string{"s1*", "s2*", "s3*"} {
				s.table().Unknown(scope, errLost)
			}
			if h := s.dials(all[40:]...).in(10 * time.Minute).holdsN(186).hold(); len(h.Entries) != 66 {
				t.Errorf("%d entries are held", len(h.Entries))
			}
			for _, scope := range []string{"s1*", "s2*", "s3*"} {
				s.table().Unknown(scope, nil)
			}
			s.in(59 * time.Second).holdsN(186)
			s.in(12 * time.Second).holdsN(120)
		},
	})
}
