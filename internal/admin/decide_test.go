package admin_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/audit"
)

func TestDecide_Audit(t *testing.T) {
	l := &loop{st: bridge.Status{Listed: true, Holds: []bridge.Hold{{ID: "h1", Bridge: "b", Count: 2, Entries: []string{"g 10.0.0.1:80", "g 10.0.0.2:80"}}}}}
	file := filepath.Join(t.TempDir(), "audit.ndjson")
	s, err := admin.New(t.Context(), admin.Options{
		Owner: "shop", Targets: []admin.Target{{Name: "zk", Loop: l, State: targetState}},
		Audit: audit.New(file, slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		t.Fatal(err)
	}
	call(s.Admin(), "POST", "/api/v1/holds/h1/deny", admin.UserHeader, "ann@laptop\x1b[31m")
	call(s.Admin(), "POST", "/api/v1/holds/h9/approve")
	text, err := os.ReadFile(file)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || len(lines) != 2 {
		t.Fatalf("%q, %v", text, err)
	}
	for _, want := range []string{`"who":"ann@laptop[31m (`, `"action":"deny"`, `"owner":"shop"`, `"target":"zk"`, `"subject":"h1"`, `"count":2`, `"g 10.0.0.2:80"`, `"after":"each entry stays`} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("%s is not in %s", want, lines[0])
		}
	}
	if !strings.Contains(lines[1], `"error":`) || !strings.Contains(lines[1], `"after":"nothing changed"`) {
		t.Errorf("entry of a hold that is not there = %s, want its error, and that nothing changed", lines[1])
	}
}

func TestDecide_LongNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.ndjson")
	s, err := admin.New(t.Context(), admin.Options{Audit: audit.New(file, slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	call(s.Admin(), "POST", "/api/v1/holds/h1/deny", admin.UserHeader, "a"+strings.Repeat("é", 100))
	text, err := os.ReadFile(file)
	if want := `"who":"a` + strings.Repeat("é", 63) + ` (`; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestEvents(t *testing.T) {
	events := &admin.Events{}
	s, err := admin.New(t.Context(), admin.Options{Events: events})
	if err != nil {
		t.Fatal(err)
	}
	events.Add(bridge.Event{Kind: bridge.EventHold, Subject: "h1", What: "held back"})
	for i := range 5000 {
		events.Add(bridge.Event{Kind: bridge.EventConflict, Subject: fmt.Sprint("g", i), What: "<refused>"})
	}
	w := call(s.Admin(), "GET", "/api/v1/events")
	page := decode[admin.Page[admin.Event]](t, w)
	if n := len(page.Items); n == 0 || n > 500 || page.Total != n || page.Items[0].Subject != "h1" || page.Items[n-1].Number != 5001 {
		t.Errorf("%d events, first %+v", len(page.Items), page.Items[0])
	}
	if bytes.Contains(w.Body.Bytes(), []byte("<")) {
		t.Error("a name of others is written unescaped")
	}
	if page = decode[admin.Page[admin.Event]](t, call(s.Admin(), "GET", "/api/v1/events?after=5000")); len(page.Items) != 1 {
		t.Errorf("events after 5000 = %+v, want one", page.Items)
	}
	if w := call(s.Admin(), "GET", "/api/v1/events?after=x"); w.Code != 400 {
		t.Errorf("events?after=x = %d, want 400", w.Code)
	}
}

// The answer to an old id names the present hold.
func TestDecide_ChangedHold(t *testing.T) {
	l := &loop{refuse: bridge.ErrNoHold, st: bridge.Status{Listed: true, Holds: []bridge.Hold{{
		ID: "5a5a5a-02bb34", Bridge: "b", Count: 3, Entries: []string{"g 1", "g 2", "g 3"},
	}}}}
	events := &admin.Events{}
	s, err := admin.New(t.Context(), admin.Options{Owner: "shop", Targets: []admin.Target{{Name: "zk", Loop: l, State: targetState}}, Events: events})
	if err != nil {
		t.Fatal(err)
	}
	events.Add(bridge.Event{Kind: bridge.EventHold, Subject: "5a5a5a-01cc56", What: "held back: 2 deletions"})
	events.Add(bridge.Event{Kind: bridge.EventHold, Subject: "777777-03", What: "held back: 1 deletion"})
	events.Add(bridge.Event{Kind: bridge.EventRelease, Subject: "777777-03", Why: "approved by ann"})
	for id, want := range map[string]string{
		"5a5a5a-01cc56": "hold 5a5a5a-01cc56 no longer exists, because its entries changed: bridge b now has 3 deletions held in zk; " +
			"see xds-bridge holds, then approve or deny 5a5a5a-02bb34",
		"5a5a5a-99ff00": "no such hold: 5a5a5a-99ff00; bridge b now has 3 deletions held in zk",
		"5a5a5a-02bb3":  "no such hold: 5a5a5a-02bb3; did you mean 5a5a5a-02bb34? See xds-bridge holds",
		"777777-03":     "777777-03 ended at 0001-01-01T00:00:00Z: approved by ann",
		"123456-04":     "no such hold: 123456-04 has ended or never existed",
	} {
		w := call(s.Admin(), "POST", "/api/v1/holds/"+id+"/approve")
		if w.Code != 404 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", id, w.Code, w.Body, want)
		}
	}
	if len(l.decided) != 0 {
		t.Errorf("decided %q, want nothing", l.decided)
	}
}

// A decision that could not be recorded is applied, and the answer says so.
func TestDecide_Recorded(t *testing.T) {
	l := &loop{st: bridge.Status{Listed: true, Holds: []bridge.Hold{{ID: "5a5a5a-01", Bridge: "b", Count: 1, Entries: []string{"g 1"}}}}}
	s, err := admin.New(t.Context(), admin.Options{Targets: []admin.Target{{Name: "zk", Loop: l, State: targetState}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, refuse := range []error{nil, fmt.Errorf("%w: denied", bridge.ErrUnrecorded)} {
		l.set(func(l *loop) { l.refuse = refuse })
		want := admin.Decision{ID: "5a5a5a-01", Target: "zk", Bridge: "b", Count: 1, Result: "denied", Recorded: refuse == nil}
		if refuse != nil {
			want.Why = refuse.Error()
		}
		if got := decode[admin.Decision](t, call(s.Admin(), "POST", "/api/v1/holds/5a5a5a-01/deny")); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
