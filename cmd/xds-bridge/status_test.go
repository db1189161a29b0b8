package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry"
)

// manyServices is the status of two bridges: one with 1,500 synced services, some others, a
// hold, an entry that settles and a conflict, and one with a single service.
func manyServices(others ...bridge.ServiceStatus) admin.Document {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	l := bridge.Status{
		Target: "zk", Listed: true,
		Bridges:   []bridge.BridgeStatus{{Name: "a", Synced: true, Reasons: map[bridge.Reason]int{}}, {Name: "b", Synced: true, Services: 1, Reasons: map[bridge.Reason]int{bridge.ReasonEmpty: 1}}},
		Holds:     []bridge.Hold{{ID: "1a-2b", Bridge: "a", Count: 3, Reason: "too many", Since: now, Release: "by approval"}},
		Conflicts: []bridge.Conflict{{Bridge: "a", Key: "k", Service: "api.Taken", Winner: "owner shpo"}},
		Kept:      []bridge.Kept{{Why: "what is missing settles", Entries: 1, Until: now.Add(time.Minute)}},
	}
	for i := range 1500 {
		l.Services = append(l.Services, bridge.ServiceStatus{Bridge: "a", Service: registry.Name(fmt.Sprintf("api.Fine%d", i)), Reason: bridge.ReasonSynced})
	}
	l.Services = append(l.Services, others...)
	for _, s := range l.Services {
		l.Bridges[0].Services++
		l.Bridges[0].Reasons[s.Reason]++
	}
	l.Services = append(l.Services, bridge.ServiceStatus{Bridge: "b", Service: "api.Empty", Reason: bridge.ReasonEmpty})
	return admin.Document{Time: now, Ready: true, Loops: []bridge.Status{l}}
}

func printed(t *testing.T, d admin.Document, f serviceFilter) string {
	t.Helper()
	chosen, err := f.apply(d)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	printStatus(newCLI(&out, &out, lookup(nil), nil).terminal, d, chosen, f)
	return out.String()
}

// Healthy services are counted, and whatever an operator may have to decide comes first.
func TestStatus_Short(t *testing.T) {
	t.Parallel()
	text := printed(t, manyServices(
		bridge.ServiceStatus{Bridge: "a", Service: "api.Due", Reason: bridge.ReasonPending},
		bridge.ServiceStatus{Bridge: "a", Service: "api.Taken", Reason: bridge.ReasonConflict, Detail: "k belongs to owner shpo"},
	), serviceFilter{})
	at := 0
	for _, want := range []string{
		"‼ hold 1a-2b of a: 3 deletions", "‼ 1 entry kept in zk: what is missing settles, until 12:01:00",
		"‼ conflict in zk: api.Taken of a: k belongs to owner shpo\n", "\nTARGET ",
		"\na        zk       1502       1 conflict, 1 pending, 1500 synced\n", "b        zk       1          1 empty\n",
		"\na        api.Due   pending",
	} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("no %q after %q in\n%s", want, text[:at], text)
		}
		at += i + len(want)
	}
	if lines := strings.Count(text, "\n"); lines > 20 || strings.Count(text, "api.Taken") != 1 || strings.Contains(text, "api.Fine1") || strings.Contains(text, "api.Empty") {
		t.Errorf("%d lines:\n%s", lines, text)
	}
}

// The worst services are listed first, and the remaining ones are counted.
func TestStatus_Worst(t *testing.T) {
	t.Parallel()
	var due []bridge.ServiceStatus
	for i := range 30 {
		due = append(due, bridge.ServiceStatus{Bridge: "a", Service: registry.Name(fmt.Sprintf("api.Due%02d", i)), Reason: bridge.ReasonPending})
	}
	text := printed(t, manyServices(append(due, bridge.ServiceStatus{Bridge: "a", Service: "api.Refused", Reason: bridge.ReasonRefused})...), serviceFilter{})
	if !strings.Contains(text, "api.Refused") || strings.Count(text, "api.Due") != shownEntries-1 || !strings.HasSuffix(text, "\n11 more services are not synced; list them with --all or --reason\n") {
		t.Error(text)
	}
}

// Filters choose services, in text and in JSON, and never what else a status says.
func TestStatus_Filters(t *testing.T) {
	t.Parallel()
	d := manyServices(bridge.ServiceStatus{Bridge: "a", Service: "api.Due", Reason: bridge.ReasonPending})
	d.Conditions = []admin.Condition{{Direction: admin.OfTarget, Registry: "zk", Name: admin.Held}}
	for name, tt := range map[string]struct {
		f                                serviceFilter
		bridges, services, holds, listed int
	}{
		"nothing":              {serviceFilter{}, 2, 1502, 1, 1},
		"all":                  {serviceFilter{all: true}, 2, 1502, 1, 1502},
		"a bridge":             {serviceFilter{bridge: "b"}, 1, 1, 0, 0},
		"all of a bridge":      {serviceFilter{bridge: "b", all: true}, 1, 1, 0, 1},
		"a reason":             {serviceFilter{reasons: []string{"empty"}}, 2, 1, 1, 1},
		"reasons":              {serviceFilter{reasons: []string{"empty", "pending"}}, 2, 2, 1, 2},
		"a reason of a bridge": {serviceFilter{bridge: "b", reasons: []string{"pending"}}, 1, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, err := tt.f.apply(d)
			if err != nil || len(chosen.Loops) != 1 || statusCode(chosen) != exitHeld {
				t.Fatalf("%+v, %v", chosen.Loops, err)
			}
			l := chosen.Loops[0]
			if len(l.Bridges) != tt.bridges || len(l.Services) != tt.services || len(l.Holds) != tt.holds || len(l.Conflicts) != tt.holds {
				t.Errorf("%d bridges, %d services, %d holds, %d conflicts", len(l.Bridges), len(l.Services), len(l.Holds), len(l.Conflicts))
			}
			if n := strings.Count(printed(t, d, tt.f), "api."); n != tt.listed {
				t.Errorf("%d services are listed", n)
			}
		})
	}
	if len(d.Loops[0].Services) != 1502 || len(d.Loops[0].Holds) != 1 {
		t.Error("a filter changes the document")
	}
}

// A bridge or a reason that does not exist is an error, not an empty list.
func TestStatus_UnknownFilters(t *testing.T) {
	t.Parallel()
	d := manyServices()
	if _, err := (serviceFilter{bridge: "c"}).apply(d); err == nil || !strings.Contains(err.Error(), "want one of a, b") {
		t.Errorf("an unknown bridge: %v", err)
	}
	d.Loops = append(d.Loops, bridge.Status{Target: "silent", LastError: "it does not answer"})
	if _, err := (serviceFilter{bridge: "c"}).apply(d); err != nil {
		t.Errorf("a bridge of a loop that does not answer: %v", err)
	}
	do(t, "status", "--reason", "conflict,sycned").want(t, exitUsage, `(got "sycned")`, "--reason must be some of", "synced,standby")
}

// Every reason has its place, and an unknown one is never taken for done.
func TestReasons(t *testing.T) {
	t.Parallel()
	done := filtered(append(bridge.Reasons(), "new"), bridge.Reason.Done)
	if want := []bridge.Reason{bridge.ReasonSynced, bridge.ReasonStandby, bridge.ReasonEmpty, bridge.ReasonSkipped, bridge.ReasonReadOnly}; !slices.Equal(done, want) {
		t.Errorf("%v are done, want %v", done, want)
	}
	if !slices.IsSortedFunc(bridge.Reasons(), bridge.Reason.Compare) {
		t.Error("they are not in order")
	}
}
