package registry_test

import (
	"errors"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

// TestANameIsToldOfByItself: what the source said of one name says nothing
// of another, and lasts for as long as somebody wants it.
func TestANameIsToldOfByItself(t *testing.T) {
	i := registry.NewInterest()
	i.Add("a", "b")
	i.Report(map[string]error{"a": nil})
	if i.Answer("a").Reported {
		t.Error("reported before the source knew that it is wanted")
	}
	if names := i.Names(); len(names) != 2 {
		t.Error(names)
	}
	more := i.Answer("a").More
	i.Report(map[string]error{"a": nil, "c": nil})
	select {
	case <-more:
	default:
		t.Error("nobody is woken")
	}
	if !i.Answer("a").Reported || i.Answer("b").Reported || i.Answer("a", "b").Reported || i.Answer("c").Reported {
		t.Error("want a reported and nothing else")
	}
	i.Add("a", "d")
	if !i.Answer("a").Reported {
		t.Error("another name, or another who wants it, makes it untold")
	}
	denied := errors.New("denied")
	i.Report(map[string]error{"a": denied, "b": denied})
	if a := i.Answer("a"); !a.Reported || !errors.Is(a.Err, denied) {
		t.Errorf("reported and now denied: %+v", a)
	}
	if b := i.Answer("b"); b.Reported || !errors.Is(b.Err, denied) {
		t.Errorf("never reported: %+v", b)
	}
	i.Drop("a")
	if !i.Answer("a").Reported {
		t.Error("one of two wants it no more")
	}
	i.Drop("a")
	i.Add("a")
	if a := i.Answer("a"); a.Reported || a.Err != nil {
		t.Errorf("wanted anew: %+v", a)
	}
	if untold := i.Unreported(); len(untold) != 1 || untold[0] != "b" {
		t.Errorf("untold of what the source knows of: %v", untold)
	}
}

// TestTheSameAnswerWakesNobody: whoever waits for more waits for something else
// than what is known.
func TestTheSameAnswerWakesNobody(t *testing.T) {
	i := registry.NewInterest()
	i.Add("a")
	i.Names()
	for _, step := range []struct {
		what  string
		err   error
		wakes bool
	}{
		{"the first", nil, true},
		{"the same", nil, false},
		{"an error", errors.New("denied"), true},
		{"an error of the same text", errors.New("denied"), false},
		{"another error", errors.New("gone"), true},
		{"none any more", nil, true},
	} {
		more, woken := i.Answer("a").More, false
		i.Report(map[string]error{"a": step.err})
		select {
		case <-more:
			woken = true
		default:
		}
		if woken != step.wakes {
			t.Errorf("%s: woken %v, want %v", step.what, woken, step.wakes)
		}
	}
}
