package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/registry"
)

// serviceFilter selects the services that status lists.
type serviceFilter struct {
	bridge  string   // empty: all bridges
	reasons []string // empty: all reasons
	all     bool     // include services that are done
}

// check returns the error of an invalid filter.
func (f serviceFilter) check() error {
	for _, r := range f.reasons {
		if !slices.Contains(bridge.Reasons(), bridge.Reason(r)) {
			return usage("--reason must be some of %s (got %q)", strings.Join(texts(bridge.Reasons()), ","), r)
		}
	}
	return nil
}

// apply returns a document without the parts of other bridges and without the services of other
// reasons. It fails if no bridge has the name.
func (f serviceFilter) apply(d admin.Document) (admin.Document, error) {
	if f.bridge == "" && len(f.reasons) == 0 {
		return d, nil
	}
	var loops []bridge.Status
	var known []string
	unknown := false // a loop that does not answer lists no bridges
	for _, l := range d.Loops {
		unknown = unknown || len(l.Bridges) == 0
		for _, b := range l.Bridges {
			known = append(known, b.Name)
		}
		if l = f.loop(l); f.bridge == "" || len(l.Bridges)+len(l.Holds) > 0 {
			loops = append(loops, l)
		}
	}
	if len(loops) == 0 && !unknown {
		return d, usage("--bridge %q: no such bridge is running; want one of %s", f.bridge, strings.Join(known, ", "))
	}
	d.Loops = loops
	return d, nil
}

func (f serviceFilter) loop(l bridge.Status) bridge.Status {
	l.Services = filtered(l.Services, func(s bridge.ServiceStatus) bool {
		return (f.bridge == "" || s.Bridge == f.bridge) &&
			(len(f.reasons) == 0 || slices.Contains(f.reasons, string(s.Reason)))
	})
	if f.bridge == "" {
		return l
	}
	l.Bridges = filtered(l.Bridges, func(b bridge.BridgeStatus) bool { return b.Name == f.bridge })
	l.Holds = filtered(l.Holds, func(h bridge.Hold) bool { return projection.SameBridge(h.Bridge, f.bridge) })
	l.Conflicts = filtered(l.Conflicts, func(c bridge.Conflict) bool { return c.Bridge == f.bridge })
	return l
}

// short reports whether the flags select no services. Then the list leaves out services that are
// done.
func (f serviceFilter) short() bool { return !f.all && len(f.reasons) == 0 }

// listed returns the services of the table, and how many more are not in sync. If the flags
// select no services, the table has those that are not done, the worst first. Conflicts are left
// out, because each is printed on its own line.
func (f serviceFilter) listed(all []bridge.ServiceStatus) (list []bridge.ServiceStatus, more int) {
	if !f.short() {
		return all, 0
	}
	list = filtered(all, func(s bridge.ServiceStatus) bool { return !s.Reason.Done() && s.Reason != bridge.ReasonConflict })
	slices.SortStableFunc(list, func(a, b bridge.ServiceStatus) int { return b.Reason.Compare(a.Reason) })
	most := min(len(list), shownEntries)
	return list[:most], len(list) - most
}

// filtered returns a new slice of the elements for which keep returns true.
func filtered[T any](all []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return !keep(x) })
}

func texts[T ~string](all []T) []string {
	list := make([]string, len(all))
	for i, x := range all {
		list[i] = string(x)
	}
	return list
}

// printUndecided prints what an operator may have to decide about: holds, kept entries, conflicts,
// and addresses that register themselves under other names.
func printUndecided(t *terminal, d admin.Document, f serviceFilter) {
	for _, l := range d.Loops {
		for _, h := range l.Holds {
			t.warn("hold %s of %s: %s", h.ID, h.Bridge, holdText(d.Time, h))
		}
		for _, k := range l.Kept {
			kept := registry.Counted(k.Entries, "entry", "entries")
			t.warn("%s kept in %s: %s%s", kept, l.Target, k.Why, until(d.Time, k.Until))
		}
		if f.short() {
			printConflicting(t, l)
		}
		printRegistered(t, l)
	}
}

// printRegistered warns of services whose addresses register themselves under other names.
func printRegistered(t *terminal, l bridge.Status) {
	all := filtered(l.Services, func(s bridge.ServiceStatus) bool { return s.Warning() != "" })
	more := warnEach(t, all, func(s bridge.ServiceStatus) string {
		return fmt.Sprintf("%s in %s: %s", s.Service, l.Target, s.Warning())
	})
	if more != "" {
		t.warn("%s in %s with addresses that register themselves under other names; status -o json shows all", more, l.Target)
	}
}

// printConflicting prints the services of a target that have a conflict, one on each line.
func printConflicting(t *terminal, l bridge.Status) {
	all := filtered(l.Services, func(s bridge.ServiceStatus) bool { return s.Reason == bridge.ReasonConflict })
	more := warnEach(t, all, func(s bridge.ServiceStatus) string {
		return fmt.Sprintf("conflict in %s: %s of %s: %s", l.Target, s.Service, s.Bridge, brief(s.Detail))
	})
	if more != "" {
		t.warn("conflict in %s: %s; list them with --reason conflict", l.Target, more)
	}
}

// warnEach prints a line for each of the first shownEntries services. It returns how many
// more there are, in words; empty for none.
func warnEach(t *terminal, all []bridge.ServiceStatus, line func(bridge.ServiceStatus) string) string {
	for _, s := range all[:min(len(all), shownEntries)] {
		t.warn("%s", line(s))
	}
	if more := len(all) - shownEntries; more > 0 {
		return registry.Counted(more, "more service", "more services")
	}
	return ""
}

// printServices prints the number of services of each bridge by reason, and the selected services.
func printServices(t *terminal, d admin.Document, f serviceFilter) {
	t.say("")
	rows := newTable(t.out, "BRIDGE", "TARGET", "SERVICES", "REASONS")
	var all []bridge.ServiceStatus
	for _, l := range d.Loops {
		for _, b := range l.Bridges {
			rows.row(b.Name, l.Target, strconv.Itoa(b.Services), reasonsText(b.Reasons))
		}
		all = append(all, l.Services...)
	}
	rows.end()
	list, more := f.listed(all)
	if len(list) == 0 {
		return
	}
	t.say("")
	rows = newTable(t.out, "BRIDGE", "SERVICE", "REASON", "CLAIMED", "LAST WRITE", "DETAIL")
	for _, s := range list {
		rows.row(s.Bridge, string(s.Service), string(s.Reason), strconv.Itoa(s.Entries), ago(d.Time, s.LastWrite),
			brief(cmp.Or(s.Detail, s.LastError)))
	}
	rows.end()
	if more > 0 {
		services := registry.Counted(more, "more service is", "more services are")
		t.say("%s not synced; list them with --all or --reason", services)
	}
}

// reasonsText returns the numbers of services by reason, the worst first.
func reasonsText(count map[bridge.Reason]int) string {
	var all []string
	for _, r := range slices.Backward(bridge.Reasons()) {
		if n := count[r]; n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, r))
		}
	}
	return strings.Join(all, ", ")
}
