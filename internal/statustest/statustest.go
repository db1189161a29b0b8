// Package statustest compares what each command and page of a bridge reports with what it must
// report in a state. Tests bring the bridge into the states.
package statustest

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Row is a state with what each command and page must report in it.
type Row struct {
	State       string
	Conditions  []string // direction, registry and name, or process and name
	Column      string   // the STATE of the first condition's registry
	Exit        int      // exit code of status
	Why         string
	Holds       int // exit code of holds
	Event       string
	Alert       string
	Ready, Live string
	Silent      bool // no page answers
}

// ByState returns rows by state.
func ByState(all ...Row) map[string]Row {
	rows := make(map[string]Row, len(all))
	for _, r := range all {
		rows[r.State] = r
	}
	return rows
}

// Registries returns the directions and registries of the conditions of a row, as status shows them;
// empty for the process.
func (r Row) Registries(q Question) []string {
	var all []string
	for _, c := range r.Conditions {
		all = append(all, q.shown(c))
	}
	return all
}

// registryOf returns the registry of a condition: zk for "source zk stale".
func registryOf(condition string) string {
	words := strings.Fields(condition)
	if words[0] == "process" {
		return ""
	}
	return words[1]
}

// Bridge is a running bridge.
type Bridge interface {
	// Do runs a command of the program against the bridge, and returns its exit code and
	// output.
	Do(args ...string) (code int, out string)

	// Get returns the status and body of a page of telemetry; status 0: no answer.
	Get(path string) (code int, body string)
}

// Question is the context of a row in a test.
type Question struct {
	Since      time.Time
	Registries []string          // of all current states; no other may have a condition
	Services   map[string]string // the service to pass to why, by direction and registry, such as target zk
	Rules      string            // the text of deploy/alerts.yaml
	Shown      map[string]string // the shown name, if it is not the registry's, by direction and registry
}

// shown returns the name under which status shows the registry of a condition.
func (q Question) shown(condition string) string {
	words := strings.Fields(condition)
	if name := q.Shown[strings.Join(words[:2], " ")]; name != "" {
		return name
	}
	return registryOf(condition)
}

// Says returns what a row requires and a bridge does not report, or nil.
func (r Row) Says(b Bridge, q Question) error {
	code, text := b.Do("status")
	held, _ := b.Do("holds")
	if code != r.Exit || held != r.Holds {
		return fmt.Errorf("status ended with %d, holds with %d\n%s", code, held, text)
	}
	_, metrics := b.Get("/metrics")
	err := errors.Join(r.alerts(q.Rules, metrics), probe(b, "/readyz", r.Ready), probe(b, "/livez", r.Live))
	if err != nil || r.Silent {
		return err
	}
	return errors.Join(r.conditions(b, q, text, metrics), r.why(b, q), r.event(b, q))
}

// document is the part of status -o json that is compared.
type document struct {
	InSync     *bool `json:"in_sync"`
	Conditions []struct {
		Direction, Registry, Condition string
	}
}

func (d document) has(direction, registry, name string) bool {
	for _, c := range d.Conditions {
		if c.Direction == direction && c.Registry == registry && c.Condition == name {
			return true
		}
	}
	return false
}

// conditions checks the JSON, the metric, the first line and the column.
func (r Row) conditions(b Bridge, q Question, text, metrics string) error {
	_, out := b.Do("status", "-o", "json")
	var d document
	if err := json.Unmarshal([]byte(out), &d); err != nil || d.InSync == nil {
		return fmt.Errorf("status -o json: %w: %s", err, out)
	}
	if *d.InSync != (r.Exit == 0) {
		return fmt.Errorf("in_sync is %t", *d.InSync)
	}
	for _, c := range d.Conditions {
		if !slices.Contains(q.Registries, c.Registry) {
			return fmt.Errorf("unexpected condition %v:\n%s", c, text)
		}
	}
	var problems []error
	for i, c := range r.Conditions {
		problems = append(problems, d.says(c, q, text, metrics))
		if i == 0 && r.Column != "-" && !inColumn(text, strings.Fields(c)[0], q.shown(c), r.Column) {
			problems = append(problems, fmt.Errorf("%s is not %s:\n%s", q.shown(c), r.Column, text))
		}
	}
	if len(r.Conditions) == 0 && !strings.HasSuffix(firstLine(text), ", in sync") {
		problems = append(problems, fmt.Errorf("the first line is %s", firstLine(text)))
	}
	return errors.Join(problems...)
}

// says checks one condition in the JSON, the metric and the first line.
func (d document) says(condition string, q Question, text, metrics string) error {
	words, registry := strings.Fields(condition), q.shown(condition)
	direction, name := words[0], words[len(words)-1]
	said := registry + " " + name
	if registry == "" {
		said = condition
	}
	series := fmt.Sprintf(`xdsbridge_condition{condition=%q,direction=%q,listen=%q,registry=%q} 1`, name, direction, listenOf(registry), registryOf(condition))
	first := firstLine(text)
	switch {
	case !d.has(direction, registry, name):
		return fmt.Errorf("no %q in the JSON: %+v", condition, d)
	case !strings.Contains(metrics, series):
		return fmt.Errorf("no series %s", series)
	case !strings.Contains(first, "not in sync: ") && !strings.Contains(first, "not ready yet: ") || !strings.Contains(first, said):
		return fmt.Errorf("no %q in the first line: %s", said, first)
	}
	return nil
}

// listenOf returns the address in the name of a target, such as mesh (:15031).
func listenOf(target string) string {
	_, listen, _ := strings.Cut(strings.TrimSuffix(target, ")"), " (")
	return listen
}

// firstLine returns the line that starts with the owner.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "owner ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// inColumn reports whether the row of a registry in the table of sources or targets contains a
// value.
func inColumn(text, direction, registry, value string) bool {
	table := ""
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
			table = ""
		case fields[0] == "SOURCE" || fields[0] == "TARGET":
			table = strings.ToLower(fields[0])
		case table == direction && strings.HasPrefix(line, registry+"  "):
			return regexp.MustCompile(`(^|  )` + regexp.QuoteMeta(value) + `  `).MatchString(line)
		}
	}
	return false
}

// why runs why for the service of the direction of a row, or for all services if the row has no
// direction.
func (r Row) why(b Bridge, q Question) error {
	if r.Why == "-" {
		return nil
	}
	asked := false
	for direction, service := range q.Services {
		if len(r.Conditions) > 0 && registryOf(r.Conditions[0]) != "" && !strings.HasPrefix(r.Conditions[0], direction+" ") {
			continue
		}
		asked = true
		if err := r.explains(b, q, service); err != nil {
			return err
		}
	}
	if !asked {
		return fmt.Errorf("no service to pass to why: %v", q.Services)
	}
	return nil
}

// explains checks that why reports the condition and the reason of a service.
func (r Row) explains(b Bridge, q Question, service string) error {
	_, text := b.Do("why", service)
	if len(r.Conditions) > 0 && registryOf(r.Conditions[0]) != "" {
		words := strings.Fields(r.Conditions[0])
		if said := q.shown(r.Conditions[0]) + " " + words[len(words)-1]; !strings.Contains(text, said) {
			return fmt.Errorf("why %s: no %q: %s", service, said, text)
		}
	}
	if r.Why == "any" {
		return nil
	}
	if _, out := b.Do("why", service, "-o", "json"); !strings.Contains(out, fmt.Sprintf(`"reason": %q`, r.Why)) {
		return fmt.Errorf("why %s: no reason %q: %s", service, r.Why, out)
	}
	return nil
}

// event checks the event of a state. For a condition it is the last event about it, because the
// condition may have begun earlier and may not have ended since.
func (r Row) event(b Bridge, q Question) error {
	if r.Event == "-" {
		return nil
	}
	kind, what, _ := strings.Cut(r.Event, " ")
	_, out := b.Do("events", "-o", "json")
	var page struct {
		Items []struct {
			Time                time.Time
			Kind, What, Subject string
		}
	}
	if err := json.Unmarshal([]byte(out), &page); err != nil {
		return fmt.Errorf("events: %w: %s", err, out)
	}
	found, about := false, ""
	if kind == "condition" {
		about = strings.TrimSpace(strings.Fields(r.Conditions[0])[0] + " " + q.shown(r.Conditions[0]))
	}
	for _, e := range page.Items {
		switch {
		case e.Kind != kind:
		case kind != "condition":
			found = found || strings.HasPrefix(e.What, what) && !e.Time.Before(q.Since)
		case e.Subject == about && strings.HasSuffix(e.What, what):
			found = e.What == what
		}
	}
	if !found {
		return fmt.Errorf("no event %q since %s: %s", r.Event, q.Since.Format(time.RFC3339), out)
	}
	return nil
}

func probe(b Bridge, path, want string) error {
	got := "-"
	code, body := b.Get(path)
	if code != 0 {
		got = strconv.Itoa(code)
	}
	if got != want {
		return fmt.Errorf("%s is %s, want %s: %s", path, got, want, body)
	}
	return nil
}

// alerts checks which alerts are true for the metrics of one scrape.
func (r Row) alerts(text, metrics string) error {
	rules := make(map[string]string)
	for _, m := range regexp.MustCompile(`alert: (\w+)\n\s+expr: (.*)`).FindAllStringSubmatch(text, -1) {
		rules[m[1]] = m[2]
	}
	for name, expr := range rules {
		is, err := holds(expr, metrics)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case name == r.Alert && !is:
			return fmt.Errorf("%s is not true: %s", name, expr)
		case r.Alert == "none" && is:
			return fmt.Errorf("%s is true", name)
		}
	}
	if _, known := rules[r.Alert]; !known && r.Alert != "none" {
		return fmt.Errorf("there is no alert %s", r.Alert)
	}
	return nil
}

// holds evaluates an expression in one of the forms that the rules use.
func holds(expr, metrics string) (bool, error) {
	if m := regexp.MustCompile(`^absent\((\w+)\)$`).FindStringSubmatch(expr); m != nil {
		return !strings.Contains(metrics, "\n"+m[1]+"{"), nil
	}
	if regexp.MustCompile(`(increase|rate|changes)\(| offset |^(sum|count) without`).MatchString(expr) {
		return false, nil // one scrape of one replica is not enough
	}
	m := regexp.MustCompile(`^max without \([\w, ]+\) \((\w+)(?:\{(.*)\})?\) > ([\d.]+)$`).FindStringSubmatch(expr)
	if m == nil {
		return false, fmt.Errorf("cannot read %s", expr)
	}
	limit, _ := strconv.ParseFloat(m[3], 64)
	matchers := regexp.MustCompile(`(\w+)(=~?)"([^"]*)"`).FindAllStringSubmatch(m[2], -1)
	for line := range strings.Lines(metrics) {
		name, rest, ok := strings.Cut(line, "{")
		if !ok || name != m[1] {
			continue
		}
		labels, value, _ := strings.Cut(rest, "} ")
		if n, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && n > limit && fits(labels, matchers) {
			return true, nil
		}
	}
	return false, nil
}

// fits reports whether the labels of a series match an expression. A matcher is a name, = or =~, and
// a value.
func fits(labels string, matchers [][]string) bool {
	for _, x := range matchers {
		pattern := regexp.QuoteMeta(x[3])
		if x[2] == "=~" {
			pattern = "(" + x[3] + ")"
		}
		if !regexp.MustCompile(`(^|,)` + x[1] + `="` + pattern + `"(,|$)`).MatchString(labels) {
			return false
		}
	}
	return true
}
