package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/admin/client"
	"github.com/xds-bridge/xds-bridge/registry"
)

func whyCommand(c *cli) *cobra.Command {
	var o clientOptions
	cmd := &cobra.Command{
		Use: "why SERVICE", Short: "Explain the state of one service", Args: oneArg("service"),
		Long: "why shows the whole path of one service through the running bridge: host,\n" +
			"service keys, endpoints, entries, owner, and the reason of its state. It begins\n" +
			"with the status of the source and the target.\n\n" +
			"Name the service by any of these:\n" +
			"  - fqdn:port, or the name of a cluster, as in the mesh\n" +
			"  - an interface or a service key\n" +
			"  - the address of an endpoint, or of an entry that remains\n" +
			"  - the id of a hold\n" +
			"  - an application or a host, if no service has that name",
		Example: "  xds-bridge why order.shop.svc.cluster.local:20880\n  xds-bridge why com.example.OrderService",
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(args[0]) == "" {
				return usage("why requires the name of a service: " +
					"fqdn:port, an interface or a service key, as status --all lists them")
			}
			return query[admin.Why]{
				ask:   func(b *client.Client, ctx context.Context) (admin.Why, error) { return b.Why(ctx, args[0]) },
				print: func(w admin.Why) { printWhy(c.terminal, w) },
			}.run(cmd.Context(), c, o)
		},
	}
	clientFlags(cmd, &o)
	return cmd
}

func printWhy(t *terminal, w admin.Why) {
	printConditions(t, time.Now(), w.Conditions)
	for _, s := range w.Sources {
		printSeen(t, s)
	}
	for _, s := range w.Skipped {
		t.say("skipped  %s: %s", s.Input, s.Reason)
	}
	for _, s := range w.Services {
		printService(t, s)
	}
	for _, h := range w.Holds {
		t.warn("hold %s in %s: %s", h.ID, h.Target, holdText(time.Now(), h.Hold))
	}
	printConflicts(t, w.Conflicts)
	for _, k := range w.Kept {
		kept := registry.Counted(k.Entries, "entry", "entries")
		t.warn("%s kept in %s: %s%s", kept, k.Target, k.Why, until(time.Now(), k.Until))
		printEntries(t, "    ", k.Keys)
	}
	printEvents(t, slices.DeleteFunc(w.Events, func(e admin.Event) bool {
		return e.Kind == bridge.EventConflict && len(w.Conflicts) > 0 // already printed
	}))
	if len(w.Services)+len(w.Kept) == 0 { // otherwise the lines above say who claims it
		printUnclaimed(t, w)
	}
}

// printUnclaimed says that no bridge claims a service.
func printUnclaimed(t *terminal, w admin.Why) {
	switch {
	case len(w.Sources)+len(w.Skipped) == 0:
		t.say("No service has this name.")
	case len(w.Sources) == 0: // the lines above say why it was skipped
	case len(w.Conditions) > 0:
		t.say("No bridge claims it yet.")
	default:
		t.say("No bridge claims it.")
	}
}

// printEntries prints at most shownEntries entries.
func printEntries(t *terminal, indent string, entries []string) {
	for _, e := range entries[:min(len(entries), shownEntries)] {
		t.say("%s%s", indent, e)
	}
	if more := len(entries) - shownEntries; more > 0 {
		t.say("%sand %d more; see why -o json", indent, more)
	}
}

// until says when a state ends automatically; empty: it does not.
func until(now, at time.Time) string {
	switch {
	case at.IsZero():
		return ""
	case at.After(now):
		return ", until " + at.Format(time.TimeOnly) + " (" + at.Sub(now).Round(time.Second).String() + ")"
	}
	return ", until the next check"
}

func printConflicts(t *terminal, conflicts []admin.Conflict) {
	for _, k := range conflicts[:min(len(conflicts), shownEntries)] {
		t.warn("conflict in %s: %s %s of %s belongs to %s", k.Target, k.Group, k.Key, k.Service, k.Winner)
	}
	if more := len(conflicts) - shownEntries; more > 0 {
		t.warn("%s; see why -o json", registry.Counted(more, "more conflict", "more conflicts"))
	}
}

func printService(t *terminal, s admin.Service) {
	t.say("target %s, bridge %s, owner %s", s.Target, s.Bridge, s.Owner)
	t.say("  service   %s", s.Service)
	detail := strings.TrimPrefix(s.Detail, string(s.Reason)+": ") // of a rejection, which begins with its reason
	details := strings.Split(detail, "\n")
	t.say("  reason    %s%s", s.Reason, colon(details[0]))
	for _, line := range details[1:min(len(details), shownEntries)] {
		t.say("            %s", line)
	}
	if more := len(details) - shownEntries; more > 0 {
		t.say("            and %d more; see why -o json", more)
	}
	t.say("  claimed   %s", registry.Counted(s.Entries, "entry", "entries"))
	for _, g := range s.Groups {
		t.say("  group     %s", g)
	}
	for _, r := range s.Registered[:min(len(s.Registered), shownEntries)] {
		t.warn("  name      %s", r)
	}
	if more := len(s.Registered) - shownEntries; more > 0 {
		t.warn("            and %d more; see why -o json", more)
	}
	if o := s.Others; o != nil {
		entries := registry.Counted(o.Entries, "entry", "entries")
		t.say("  others    %s that providers registered themselves under the same names, such as:", entries)
		printEntries(t, "            ", o.Some)
	}
	if len(s.Left) > 0 {
		t.say("  kept      entries that it no longer claims%s:", until(time.Now(), s.Until))
		printEntries(t, "            ", s.Left)
	}
	if s.LastError != "" {
		t.say("  error     %s", brief(s.LastError))
	}
}

func printSeen(t *terminal, s admin.Seen) {
	t.say("source %s", s.Source)
	t.say("  service   %s", s.Service)
	for _, k := range s.Keys {
		t.say("  key       %s", k)
	}
	for _, a := range slices.Sorted(maps.Keys(s.Attributes)) {
		t.say("  %-9s %s", a, s.Attributes[a])
	}
	if s.Unknown != "" {
		t.say("  unknown   %s", s.Unknown)
	}
	for _, e := range s.Endpoints {
		parts := []string{e.Address, healthText(e)}
		if e.Protocol != "" {
			parts = append(parts, e.Protocol)
		}
		if e.Zone != "" {
			parts = append(parts, e.Zone)
		}
		t.say("  endpoint  %s", strings.Join(parts, ", "))
	}
	if len(s.Endpoints) == 0 {
		t.say("  endpoint  none")
	}
}

// healthText returns the health of an endpoint. Most registries do not report that an endpoint is
// healthy, so that an unknown health is shown as offered.
func healthText(e admin.Endpoint) string {
	switch unknown := e.Health == registry.HealthUnknown.String(); {
	case unknown && e.Offered:
		return "offered"
	case !e.Offered:
		return e.Health + ", not offered"
	}
	return e.Health
}

func colon(detail string) string {
	if detail == "" {
		return ""
	}
	return ": " + detail
}
