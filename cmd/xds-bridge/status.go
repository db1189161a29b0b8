package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/app"
)

func statusCommand(c *cli) *cobra.Command {
	var o clientOptions
	cmd := &cobra.Command{
		Use: "status", Short: "Show what the running bridge knows and does", Args: noArgs,
		Long: "status asks the running bridge. It exits with 0 where everything is in sync, 1\n" +
			"where something is not, 4 where the bridge does not answer and 5 where a guard\n" +
			"holds deletions back. OURS, OTHERS and CLAIMED count entries: a host that is\n" +
			"served into a mesh is one, beside its endpoints.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query[admin.Document]{
				ask: (*app.Client).Status, print: func(d admin.Document) { printStatus(c.terminal, d) }, code: statusCode,
			}.run(cmd.Context(), c, o)
		},
	}
	clientFlags(cmd, &o)
	return cmd
}

func statusCode(d admin.Document) int {
	code := exitOK
	if !d.Ready {
		code = exitFindings
	}
	for _, c := range d.Conditions {
		switch {
		case c.Name == admin.Held:
			code = exitHeld
		case c.Lasts() && code == exitOK:
			code = exitFindings
		}
	}
	return code
}

func of(name string) string {
	if name == "" {
		return ""
	}
	return " of bridge " + name
}

// leaderships says on one line what a replica leads.
func leaderships(r admin.Replicas) string {
	var leads, standbys []string
	for _, e := range r.Elections {
		switch {
		case e.Role == bridge.RoleLeader:
			leads = append(leads, e.Target)
		case e.Leader == "":
			standbys = append(standbys, e.Target+" (nobody leads)")
		default:
			standbys = append(standbys, e.Target+" (led by "+e.Leader+")")
		}
	}
	line := fmt.Sprintf("replica %s, one of %d", r.Identity, len(r.Members))
	if len(r.Members) < r.Expected {
		line += fmt.Sprintf(" of %d expected", r.Expected)
	}
	if len(leads) > 0 {
		line += ", leader of " + strings.Join(leads, ", ")
	}
	if len(standbys) > 0 {
		line += ", standby of " + strings.Join(standbys, ", ")
	}
	if r.LastError != "" {
		line += "; lease out of reach: " + r.LastError
	}
	return line
}

func printStatus(t *terminal, d admin.Document) {
	if d.Reload != nil && !d.Reload.OK {
		t.warn("the configuration that was read %s was refused: %s", ago(d.Time, d.Reload.Time), strings.Join(d.Reload.Errors, "; "))
	}
	t.say("owner %s, version %s, up %s, %s", d.Owner, d.Version, d.Time.Sub(d.Started).Truncate(time.Second), readiness(d))
	printConditions(t, d.Time, slices.DeleteFunc(slices.Clone(d.Conditions), func(x admin.Condition) bool {
		return slices.Contains([]admin.ConditionName{admin.ReloadRefused, admin.Held}, x.Name) // each has lines of its own
	}))
	if d.Reload != nil {
		for _, what := range d.Reload.Left {
			t.warn("%s", what)
		}
	}
	if d.Replicas != nil {
		t.say("%s", leaderships(*d.Replicas))
	}
	t.say("")
	rows := newTable(t.out, "SOURCE", "KIND", "STATE", "SERVICES", "ENDPOINTS", "SKIPPED", "LAST CONTACT", "DETAIL")
	for _, s := range d.Sources {
		endpoints := 0
		for _, n := range s.Endpoints {
			endpoints += n
		}
		rows.row(s.Name, s.Kind, stateText(d, admin.OfSource, s.Name), strconv.Itoa(s.Services), strconv.Itoa(endpoints), strconv.Itoa(len(s.Skipped)),
			ago(d.Time, s.LastContact), brief(sourceDetail(s)))
	}
	rows.end()
	for _, src := range d.Sources {
		printSkipped(t, src)
	}
	t.say("")
	rows = newTable(t.out, "TARGET", "STATE", "OURS", "OTHERS", "DUE", "LAST WRITE", "HOLDS", "CONFLICTS", "DETAIL")
	for _, l := range d.Loops {
		rows.row(l.Target, stateText(d, admin.OfTarget, l.Target), strconv.Itoa(l.Owned), strconv.Itoa(l.Foreign), strconv.Itoa(l.Queue),
			ago(d.Time, l.LastWrite), strconv.Itoa(len(l.Holds)), strconv.Itoa(len(l.Conflicts)), brief(targetDetail(d, l)))
	}
	rows.end()
	printServices(t, d)
}

func printConditions(t *terminal, now time.Time, all []admin.Condition) {
	for i, x := range all {
		if slices.ContainsFunc(all[:i], func(before admin.Condition) bool { return sameCause(before, x) }) {
			continue
		}
		until := ""
		switch {
		case x.Lasts():
		case x.Until.After(now):
			until = ", until " + x.Until.Format(time.TimeOnly)
		default:
			until = ", until the next reading"
		}
		names := []string{string(x.Name)}
		for _, o := range all[i+1:] { // which say the same once more
			if sameCause(x, o) {
				names = append(names, string(o.Name))
			}
		}
		t.warn("%s %s%s for %s%s%s", cmp.Or(x.Registry, string(x.Direction)), strings.Join(names, ", "), of(x.Bridge), lasting(now, x.Since), until, colon(brief(x.Detail)))
	}
}

// sameCause reports whether two conditions of a source end with the same cause, such as
// that a connection was refused.
func sameCause(a, b admin.Condition) bool {
	cause := func(c admin.Condition) string {
		text, _, _ := strings.Cut(brief(c.Detail), "; ") // and its remedy
		return text[strings.LastIndex(text, ": ")+1:]
	}
	return a.Direction == admin.OfSource && b.Direction == admin.OfSource && a.Registry == b.Registry && a.Lasts() && b.Lasts() && cause(a) == cause(b)
}

// shownSkipped is how many inputs that a source left out status shows.
const shownSkipped = 10

func printSkipped(t *terminal, s admin.Source) {
	for _, k := range s.Skipped[:min(len(s.Skipped), shownSkipped)] {
		t.say("skipped of %s: %s: %s", s.Name, k.Input, k.Reason)
	}
	if n := len(s.Skipped) - shownSkipped; n > 0 {
		t.say("skipped of %s: %d more, which status -o json shows", s.Name, n)
	}
}

func printServices(t *terminal, d admin.Document) {
	t.say("")
	rows := newTable(t.out, "BRIDGE", "SERVICE", "REASON", "CLAIMED", "LAST WRITE", "DETAIL")
	for _, l := range d.Loops {
		for _, s := range l.Services {
			rows.row(s.Bridge, string(s.Service), string(s.Reason), strconv.Itoa(s.Entries), ago(d.Time, s.LastWrite), brief(cmp.Or(s.Detail, s.LastError)))
		}
	}
	rows.end()
	for _, l := range d.Loops {
		for _, s := range l.Services {
			if warning := s.Warning(); warning != "" {
				t.warn("%s in %s: %s", s.Service, l.Target, warning)
			}
		}
		for _, h := range l.Holds {
			t.warn("hold %s of %s: %s", h.ID, h.Bridge, holdText(d.Time, h))
		}
		for _, k := range l.Kept {
			t.warn("%s of ours %s in %s: %s%s", counted(k.Entries, "entry", "entries"), stay(k.Entries), l.Target, k.Why, until(d.Time, k.Until))
		}
	}
}

// readiness says in one line whether everything is in sync or, if not, what keeps it
// from that.
func readiness(d admin.Document) string {
	var why []string
	for _, c := range d.Conditions {
		if !c.Lasts() {
			continue
		}
		what := cmp.Or(c.Registry, string(c.Direction)) + " " + string(c.Name)
		if !slices.Contains(why, what) {
			why = append(why, what)
		}
	}
	switch said := strings.Join(why, ", "); {
	case !d.Ready:
		return "not ready yet" + colon(said)
	case said != "":
		return "not in sync: " + said
	}
	return "in sync"
}

// stateText returns the name of the worst condition of a source or target.
func stateText(d admin.Document, of admin.Direction, name string) string {
	for _, c := range d.Conditions {
		if c.Direction == of && c.Registry == name {
			return strings.ToUpper(strings.ReplaceAll(string(c.Name), "-", " "))
		}
	}
	return "SYNCED"
}

func sourceDetail(s admin.Source) string {
	detail := cmp.Or(s.Stale, s.LastError)
	if detail == "" && s.Mapping != nil {
		detail = cmp.Or(s.Mapping.LastError, fmt.Sprintf("%d service keys by %s", s.Mapping.Keys, s.Mapping.From))
	}
	return detail
}

// targetDetail says what is wrong with a target or, if nothing is, what it
// is connected to.
func targetDetail(d admin.Document, l bridge.Status) string {
	for _, t := range d.Targets {
		if t.Name != l.Target {
			continue
		}
		detail := "connected to " + t.Server
		if t.Kind == "mesh" {
			detail = t.ReadBy()
		}
		if t.Login != nil {
			detail += " as " + t.Login.Username
		}
		if t.Kind != "mesh" && (!t.Connected || t.LastError != "") {
			detail = cmp.Or(t.LastError, "not connected yet")
		}
		if t.Login != nil && t.Login.LastError != "" {
			detail = t.Login.LastError
		}
		return cmp.Or(l.LastError, detail)
	}
	return l.LastError
}

func ago(now, at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return lasting(now, at) + " ago"
}

// lasting says for how long something has lasted.
func lasting(now, since time.Time) string {
	return now.Sub(since).Truncate(100 * time.Millisecond).String()
}
