package registry_test

import (
	"errors"
	"testing"

	"github.com/xds-bridge/xds-bridge/registry"
)

// TestInterest_EachNameOnItsOwn shows that a report of one name does not affect
// another name, and is kept while the name has readers.
func TestInterest_EachNameOnItsOwn(t *testing.T) {
	i := registry.NewInterest()
	i.Add("a", "b")
	i.Report(map[string]error{"a": nil})
	if i.Answer("a").Reported {
		t.Error("Answer = reported, want it only after Names returned the name")
	}
	if names := i.Names(); len(names) != 2 {
		t.Errorf("Names = %v, want a and b", names)
	}
	more := i.Answer("a").More
	i.Report(map[string]error{"a": nil, "c": nil})
	select {
	case <-more:
	default:
		t.Error("More is open after Report, want it closed")
	}
	if !i.Answer("a").Reported || i.Answer("b").Reported || i.Answer("a", "b").Reported || i.Answer("c").Reported {
		t.Error("Answer: want a reported, and no other name")
	}
	i.Add("a", "d")
	if !i.Answer("a").Reported {
		t.Error("Answer = not reported after another Add, want reported")
	}
	denied := errors.New("denied")
	i.Report(map[string]error{"a": denied, "b": denied})
	if a := i.Answer("a"); !a.Reported || !errors.Is(a.Err, denied) {
		t.Errorf("Answer = %+v, want reported and the error", a)
	}
	if b := i.Answer("b"); b.Reported || !errors.Is(b.Err, denied) {
		t.Errorf("Answer = %+v, want not reported and the error", b)
	}
	i.Drop("a")
	if !i.Answer("a").Reported {
		t.Error("one of two wants it no more")
	}
	i.Drop("a")
	i.Add("a")
	if a := i.Answer("a"); a.Reported || a.Err != nil {
		t.Errorf("after a second Add: %+v", a)
	}
	if untold := i.Unreported(); len(untold) != 1 || untold[0] != "b" {
		t.Errorf("untold of what the source knows of: %v", untold)
	}
}

// TestInterest_SameAnswer shows that a repeated report wakes no reader.
func TestInterest_SameAnswer(t *testing.T) {
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
