package states_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/states"
)

func page(t *testing.T) (page, rules string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := os.ReadFile("../../deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text), string(alerts)
}

// A page of which no row is read would assert nothing.
func TestThePageIsRead(t *testing.T) {
	text, _ := page(t)
	rows, err := states.Read(text, "real")
	if err != nil || len(rows) < 20 || !slices.Equal(rows["mesh killed"].Conditions, []string{"source mesh stale"}) || rows["mesh empty"].Exit != 5 {
		t.Errorf("%d rows, %v: %+v", len(rows), err, rows["mesh killed"])
	}
	lines := strings.Count(text, "| real |") + strings.Count(text, "| fake |")
	fakes, err := states.Read(text, "fake")
	if err != nil || len(rows)+len(fakes) != lines {
		t.Errorf("%d and %d rows of %d lines are read, %v", len(rows), len(fakes), lines, err)
	}
	if _, err := states.Read(strings.Replace(text, "| 5 |", "| five |", 1), "real"); err == nil {
		t.Error("an exit code that is none is taken")
	}
}

// answers are what a bridge says: each verb and path, in words.
type answers map[string]string

func (a answers) Do(args ...string) (int, string) {
	return map[string]int{"status": 1}[strings.Join(args, " ")], a[strings.Join(args, " ")]
}

func (a answers) Get(path string) (int, string) { return 200, a[path] }

func stale() answers {
	return answers{
		"status":            "owner shop, not in step: mesh stale\n\nSOURCE  KIND  STATE  SERVICES\nmesh    mesh  STALE  1\n",
		"status -o json":    `{"in_sync": false, "conditions": [{"direction": "source", "peer": "mesh", "condition": "stale"}]}`,
		"events -o json":    `{"items": [{"time": "2026-11-01T12:00:00Z", "kind": "condition", "subject": "source mesh", "what": "stale"}]}`,
		"why api.A":         "‼ mesh stale since 3s ago: away\nsource mesh\n",
		"why api.A -o json": `{"services": [{"reason": "synced"}]}`,
		"/metrics":          "# x\nxdsbridge_build_info{} 1\nxdsbridge_condition{condition=\"stale\",direction=\"source\",peer=\"mesh\"} 1\n",
	}
}

// Every way of asking is looked at: one that says otherwise is found.
func TestEachCellIsCompared(t *testing.T) {
	text, rules := page(t)
	rows, err := states.Read(text, "real")
	if err != nil {
		t.Fatal(err)
	}
	q := states.Question{
		Since: time.Date(2026, 11, 1, 11, 0, 0, 0, time.UTC), Peers: []string{"mesh"}, Services: map[string]string{"source mesh": "api.A"}, Rules: rules,
	}
	row := rows["mesh killed"]
	if err := row.Says(stale(), q); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*states.Row, answers, *states.Question){
		"exit code":     func(r *states.Row, _ answers, _ *states.Question) { r.Exit = 0 },
		"holds":         func(r *states.Row, _ answers, _ *states.Question) { r.Holds = 5 },
		"readiness":     func(r *states.Row, _ answers, _ *states.Question) { r.Ready = "503" },
		"liveness":      func(r *states.Row, _ answers, _ *states.Question) { r.Live = "-" },
		"alert":         func(r *states.Row, _ answers, _ *states.Question) { r.Alert = "XdsBridgeHold" },
		"no alert":      func(r *states.Row, _ answers, _ *states.Question) { r.Alert = "none" },
		"unknown alert": func(r *states.Row, _ answers, _ *states.Question) { r.Alert = "XdsBridge" },
		"column":        func(r *states.Row, _ answers, _ *states.Question) { r.Column = "SYNCED" },
		"not asked":     func(_ *states.Row, _ answers, q *states.Question) { q.Services = nil },
		"why":           func(_ *states.Row, a answers, _ *states.Question) { a["why api.A"] = "source mesh\n" },
		"reason":        func(r *states.Row, _ answers, _ *states.Question) { r.Why = "held" },
		"event":         func(r *states.Row, _ answers, _ *states.Question) { r.Event = "condition away" },
		"another's event": func(_ *states.Row, a answers, _ *states.Question) {
			a["events -o json"] = strings.Replace(a["events -o json"], "source mesh", "source zk", 1)
		},
		"it has ended": func(_ *states.Row, a answers, _ *states.Question) {
			a["events -o json"] = strings.Replace(a["events -o json"], "]}", `, {"kind": "condition", "subject": "source mesh", "what": "no longer stale"}]}`, 1)
		},
		"an old event": func(r *states.Row, a answers, q *states.Question) {
			r.Event, q.Since = "hold stale", q.Since.Add(24*time.Hour)
			a["events -o json"] = strings.Replace(a["events -o json"], `"kind": "condition"`, `"kind": "hold"`, 1)
		},
		"another's state": func(_ *states.Row, _ answers, q *states.Question) { q.Peers = []string{"zk"} },
		"first line": func(_ *states.Row, a answers, _ *states.Question) {
			a["status"] = strings.Replace(a["status"], "mesh stale", "", 1)
		},
		"in sync": func(_ *states.Row, a answers, _ *states.Question) {
			a["status -o json"] = strings.Replace(a["status -o json"], "false", "true", 1)
		},
		"conditions": func(_ *states.Row, a answers, _ *states.Question) { a["status -o json"] = `{"in_sync": false}` },
		"metric": func(_ *states.Row, a answers, _ *states.Question) {
			a["/metrics"] = strings.Replace(a["/metrics"], `"} 1`, `"} 0`, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, a, asked := row, stale(), q
			change(&r, a, &asked)
			if err := r.Says(a, asked); err == nil {
				t.Error("nothing is found")
			}
		})
	}
}
