package bridge_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// pausing starts a bridge of 20 services with one endpoint each, and returns
// what stops its loop for as long as the process would be: nothing is read and
// nothing is written meanwhile, and waits continue.
func pausing(t *testing.T) (*story, func(time.Duration)) {
	t.Helper()
	var pause atomic.Int64
	s := newStory(t).bridge("b", bridge.DefaultGuard())
	s.opts.OnEvent = func(e bridge.Event) {
		if e.Kind == bridge.EventInvalid {
			time.Sleep(time.Duration(pause.Load()))
		}
	}
	s.starts().has(fleet(20, 1)...).in(10 * time.Minute)
	n := 0
	return s, func(d time.Duration) {
		pause.Store(int64(d))
		n++
		bad := service("bad")
		bad.Attributes = map[string]string{"bad": time.Duration(n).String()}
		s.table().Put(bad)
		s.in(d)
	}
}

// TestPause has a process stand still while something is away for a second.
func TestPause(t *testing.T) {
	stories(t, map[string]func(*testing.T){
		"the last endpoint waits anew": func(t *testing.T) {
			for _, d := range []time.Duration{19 * time.Second, 40 * time.Second} { // of a wait of which 20 s are left
				s, pause := pausing(t)
				s.table().Delete("s0")
				s.in(10 * time.Second)
				pause(d)
				s.in(29 * time.Second).holdsN(20)
				s.in(2 * time.Second).holdsN(19).stop()
			}
		},
		"an orphan settles anew": func(t *testing.T) {
			s, pause := pausing(t)
			s.has(fleet(19, 1)...).in(50 * time.Second)
			pause(time.Minute)
			s.in(58 * time.Second).holdsN(20)
			s.in(4 * time.Second).holdsN(19)
		},
		"a hold is confirmed by what was read long enough after it": func(t *testing.T) {
			s, pause := pausing(t)
			s.loses(0, 10).in(9 * time.Minute)
			s.dials(fleet(20, 1)[10:]...).in(10 * time.Second)
			pause(5 * time.Minute)
			s.in(58 * time.Second).holdsN(20).hold()
			s.in(33 * time.Second).holdsN(10).noHold()
		},
		"a loop that is only busy for a moment waits no longer": func(t *testing.T) {
			s, pause := pausing(t)
			s.table().Delete("s0")
			s.in(10 * time.Second)
			pause(500 * time.Millisecond)
			s.in(20 * time.Second).holdsN(19)
		},
	})
}
