package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/admin/client"
	"github.com/xds-bridge/xds-bridge/registry"
)

func statusCommand(c *cli) *cobra.Command {
	var o clientOptions
	var f serviceFilter
	cmd := &cobra.Command{
		Use: "status", Short: "Show the state of the running bridge", Args: noArgs,
		Long: "status shows the state of the running bridge. It exits with 0 if everything is\n" +
			"in sync, 1 if something is not, 4 if the bridge does not answer, and 5 if a\n" +
			"guard holds deletions. Flags do not change the exit code.\n\n" +
			"status counts the services of each bridge by reason. It lists at most 20\n" +
			"services that are not in sync, the worst first. OURS, OTHERS and CLAIMED count\n" +
			"entries; a host that is served into a mesh is one entry in addition to its\n" +
			"endpoints.",
		Example: "  xds-bridge status --bridge mesh-to-zk --all\n  xds-bridge status --reason conflict,refused -o json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return runStatus(cmd.Context(), c, o, f) },
	}
	clientFlags(cmd, &o)
	cmd.Flags().StringVar(&f.bridge, "bridge", "", "only the services, holds and conflicts of this bridge")
	cmd.Flags().StringSliceVar(&f.reasons, "reason", nil,
		"list all services with one of these reasons, such as conflict,refused")
	cmd.Flags().BoolVar(&f.all, "all", false, "list all services")
	reasons := cobra.FixedCompletions(texts(bridge.Reasons()), cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc("reason", reasons) // fails only for an undefined flag
	return cmd
}

func runStatus(ctx context.Context, c *cli, o clientOptions, f serviceFilter) error {
	if err := f.check(); err != nil {
		return err
	}
	var all admin.Document
	return query[admin.Document]{
		ask: func(b *client.Client, ctx context.Context) (admin.Document, error) {
			var err error
			if all, err = b.Status(ctx); err != nil {
				return all, err
			}
			return f.apply(all)
		},
		print: func(chosen admin.Document) { printStatus(c.terminal, all, chosen, f) },
		code:  statusCode,
	}.run(ctx, c, o)
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

// leaderships returns one line about the targets that a replica leads.
func leaderships(r admin.Replicas) string {
	var leads, standbys []string
	for _, e := range r.Elections {
		switch {
		case e.Role == bridge.RoleLeader:
			leads = append(leads, e.Target)
		case e.Leader == "":
			standbys = append(standbys, e.Target+" (no leader)")
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
		line += "; lease unreachable: " + r.LastError
	}
	return line
}

// printStatus prints a status. The document chosen has only the loops and services that the
// filter selects.
func printStatus(t *terminal, d, chosen admin.Document, f serviceFilter) {
	if d.Reload != nil && !d.Reload.OK {
		t.warn("the configuration read %s was rejected: %s", ago(d.Time, d.Reload.Time), strings.Join(d.Reload.Errors, "; "))
	}
	t.say("owner %s, version %s, up %s, %s", d.Owner, d.Version, d.Time.Sub(d.Started).Truncate(time.Second), readiness(d))
	if d.Replicas != nil {
		t.say("%s", leaderships(*d.Replicas))
	}
	printConditions(t, d.Time, slices.DeleteFunc(slices.Clone(d.Conditions), func(x admin.Condition) bool {
		return slices.Contains([]admin.ConditionName{admin.ReloadRefused, admin.Held}, x.Name) // printed separately
	}))
	if d.Reload != nil {
		for _, what := range d.Reload.Left {
			t.warn("%s", what)
		}
	}
	printUndecided(t, chosen, f)
	t.say("")
	rows := newTable(t.out, "SOURCE", "KIND", "STATE", "SERVICES", "ENDPOINTS", "SKIPPED", "LAST CONTACT", "DETAIL")
	for _, s := range d.Sources {
		endpoints := 0
		for _, n := range s.Endpoints {
			endpoints += n
		}
		rows.row(s.Name, s.Kind, stateText(d, admin.OfSource, s.Name), strconv.Itoa(s.Services), strconv.Itoa(endpoints),
			strconv.Itoa(len(s.Skipped)), ago(d.Time, s.LastContact), brief(sourceDetail(s)))
	}
	rows.end()
	for _, src := range d.Sources {
		printSkipped(t, src)
	}
	t.say("")
	rows = newTable(t.out, "TARGET", "STATE", "OURS", "OTHERS", "DUE", "LAST WRITE", "HOLDS", "CONFLICTS", "DETAIL")
	for _, l := range d.Loops {
		rows.row(l.Target, stateText(d, admin.OfTarget, l.Target), strconv.Itoa(l.Owned), strconv.Itoa(l.Foreign),
			strconv.Itoa(l.Queue), ago(d.Time, l.LastWrite), strconv.Itoa(len(l.Holds)), strconv.Itoa(len(l.Conflicts)),
			brief(targetDetail(d, l)))
	}
	rows.end()
	printServices(t, chosen, f)
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
			until = ", until the next read"
		}
		names := []string{string(x.Name)}
		for _, o := range all[i+1:] { // conditions with the same cause share a line
			if sameCause(x, o) {
				names = append(names, string(o.Name))
			}
		}
		t.warn("%s %s%s for %s%s%s", cmp.Or(x.Registry, string(x.Direction)), strings.Join(names, ", "), of(x.Bridge),
			lasting(now, x.Since), until, colon(brief(x.Detail)))
	}
}

// sameCause reports whether the details of two conditions of a source end with the same cause,
// such as a refused connection.
func sameCause(a, b admin.Condition) bool {
	cause := func(c admin.Condition) string {
		text, _, _ := strings.Cut(brief(c.Detail), "; ") // without its remedy
		return text[strings.LastIndex(text, ": ")+1:]
	}
	return a.Direction == admin.OfSource && b.Direction == admin.OfSource && a.Registry == b.Registry &&
		a.Lasts() && b.Lasts() && cause(a) == cause(b)
}

// shownSkipped is the maximum number of skipped inputs of a source.
const shownSkipped = 10

func printSkipped(t *terminal, s admin.Source) {
	for _, k := range s.Skipped[:min(len(s.Skipped), shownSkipped)] {
		t.say("skipped of %s: %s: %s", s.Name, k.Input, k.Reason)
	}
	if n := len(s.Skipped) - shownSkipped; n > 0 {
		t.say("skipped of %s: %d more; see status -o json", s.Name, n)
	}
}

// readiness returns one line that says whether everything is in sync, or what prevents it.
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
	switch reasons := strings.Join(why, ", "); {
	case !d.Ready:
		return "not ready yet" + colon(reasons)
	case reasons != "":
		return "not in sync: " + reasons
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
		keys := registry.Counted(s.Mapping.Keys, "service key", "service keys")
		detail = cmp.Or(s.Mapping.LastError, keys+" by "+s.Mapping.From)
	}
	return detail
}

// targetDetail returns the problem of a target or, if there is none, the server that it is
// connected to.
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

// lasting returns the time since something began.
func lasting(now, since time.Time) string {
	return now.Sub(since).Truncate(100 * time.Millisecond).String()
}
