package statustest_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/statustest"
)

// answers has the answer to each command and path of a bridge.
type answers map[string]string

func (a answers) Do(args ...string) (int, string) {
	return map[string]int{"status": 1}[strings.Join(args, " ")], a[strings.Join(args, " ")]
}

func (a answers) Get(path string) (int, string) { return 200, a[path] }

func stale() answers {
	return answers{
		"status":            "owner shop, not in sync: mesh stale\n\nSOURCE  KIND  STATE  SERVICES\nmesh    mesh  STALE  1\n",
		"status -o json":    `{"in_sync": false, "conditions": [{"direction": "source", "registry": "mesh", "condition": "stale"}]}`,
		"events -o json":    `{"items": [{"time": "2026-11-01T12:00:00Z", "kind": "condition", "subject": "source mesh", "what": "stale"}]}`,
		"why api.A":         "‼ mesh stale for 3s: away\nsource mesh\n",
		"why api.A -o json": `{"services": [{"reason": "synced"}]}`,
		"/metrics":          "# x\nxdsbridge_build_info{} 1\nxdsbridge_condition{condition=\"stale\",direction=\"source\",listen=\"\",registry=\"mesh\"} 1\n",
	}
}

// Every command and page is compared: each deviation is found.
func TestCompare_Cells(t *testing.T) {
	rules, err := os.ReadFile("../../deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	q := statustest.Question{
		Since: time.Date(2026, 11, 1, 11, 0, 0, 0, time.UTC), Registries: []string{"mesh"}, Services: map[string]string{"source mesh": "api.A"}, Rules: string(rules),
	}
	row := statustest.Row{
		State: "mesh killed", Conditions: []string{"source mesh stale"}, Column: "STALE", Exit: 1, Why: "synced",
		Event: "condition stale", Alert: "XdsBridgeSourceStale", Ready: "200", Live: "200",
	}
	if err := row.Says(stale(), q); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*statustest.Row, answers, *statustest.Question){
		"exit code":     func(r *statustest.Row, _ answers, _ *statustest.Question) { r.Exit = 0 },
		"holds":         func(r *statustest.Row, _ answers, _ *statustest.Question) { r.Holds = 5 },
		"readiness":     func(r *statustest.Row, _ answers, _ *statustest.Question) { r.Ready = "503" },
		"liveness":      func(r *statustest.Row, _ answers, _ *statustest.Question) { r.Live = "-" },
		"alert":         func(r *statustest.Row, _ answers, _ *statustest.Question) { r.Alert = "XdsBridgeHold" },
		"no alert":      func(r *statustest.Row, _ answers, _ *statustest.Question) { r.Alert = "none" },
		"unknown alert": func(r *statustest.Row, _ answers, _ *statustest.Question) { r.Alert = "XdsBridge" },
		"column":        func(r *statustest.Row, _ answers, _ *statustest.Question) { r.Column = "SYNCED" },
		"not asked":     func(_ *statustest.Row, _ answers, q *statustest.Question) { q.Services = nil },
		"why":           func(_ *statustest.Row, a answers, _ *statustest.Question) { a["why api.A"] = "source mesh\n" },
		"reason":        func(r *statustest.Row, _ answers, _ *statustest.Question) { r.Why = "held" },
		"event":         func(r *statustest.Row, _ answers, _ *statustest.Question) { r.Event = "condition unreachable" },
		"another's event": func(_ *statustest.Row, a answers, _ *statustest.Question) {
			a["events -o json"] = strings.Replace(a["events -o json"], "source mesh", "source zk", 1)
		},
		"it has ended": func(_ *statustest.Row, a answers, _ *statustest.Question) {
			a["events -o json"] = strings.Replace(a["events -o json"], "]}", `, {"kind": "condition", "subject": "source mesh", "what": "no longer stale"}]}`, 1)
		},
		"an old event": func(r *statustest.Row, a answers, q *statustest.Question) {
			r.Event, q.Since = "hold stale", q.Since.Add(24*time.Hour)
			a["events -o json"] = strings.Replace(a["events -o json"], `"kind": "condition"`, `"kind": "hold"`, 1)
		},
		"another's state": func(_ *statustest.Row, _ answers, q *statustest.Question) { q.Registries = []string{"zk"} },
		"first line": func(_ *statustest.Row, a answers, _ *statustest.Question) {
			a["status"] = strings.Replace(a["status"], "mesh stale", "", 1)
		},
		"in sync": func(_ *statustest.Row, a answers, _ *statustest.Question) {
			a["status -o json"] = strings.Replace(a["status -o json"], "false", "true", 1)
		},
		"conditions": func(_ *statustest.Row, a answers, _ *statustest.Question) { a["status -o json"] = `{"in_sync": false}` },
		"metric": func(_ *statustest.Row, a answers, _ *statustest.Question) {
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
