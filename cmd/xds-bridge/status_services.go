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

// serviceFilter says which services status lists.
type serviceFilter struct {
	bridge  string   // empty: of every bridge
	reasons []string // empty: of any reason
	all     bool     // those that have nothing left to do as well
}

// check returns what is wrong with a filter itself.
func (f serviceFilter) check() error {
	for _, r := range f.reasons {
		if !slices.Contains(bridge.Reasons(), bridge.Reason(r)) {
			return usage("--reason %q is not a reason; write some of %s", r, strings.Join(texts(bridge.Reasons()), ","))
		}
	}
	return nil
}

// of returns a document without the parts of other bridges, and the services of other
// reasons. The error is that no such bridge runs.
func (f serviceFilter) of(d admin.Document) (admin.Document, error) {
	if f.bridge == "" && len(f.reasons) == 0 {
		return d, nil
	}
	var loops []bridge.Status
	var known []string
	unknown := false // a loop that does not answer shows no bridge
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
		return d, usage("--bridge %q: no such bridge runs; there are %s", f.bridge, strings.Join(known, ", "))
	}
	d.Loops = loops
	return d, nil
}

func (f serviceFilter) loop(l bridge.Status) bridge.Status {
	l.Services = filtered(l.Services, func(s bridge.ServiceStatus) bool {
		return (f.bridge == "" || s.Bridge == f.bridge) && (len(f.reasons) == 0 || slices.Contains(f.reasons, string(s.Reason)))
	})
	if f.bridge == "" {
		return l
	}
	l.Bridges = filtered(l.Bridges, func(b bridge.BridgeStatus) bool { return b.Name == f.bridge })
	l.Holds = filtered(l.Holds, func(h bridge.Hold) bool { return projection.SameBridge(h.Bridge, f.bridge) })
	l.Conflicts = filtered(l.Conflicts, func(c bridge.Conflict) bool { return c.Bridge == f.bridge })
	return l
}

// short reports whether the user chose no services: those that are done are left out then.
func (f serviceFilter) short() bool { return !f.all && len(f.reasons) == 0 }

// listed returns the services of the table, and how many more are not synced. Without a
// choice these are those that have something left to do, the worst first, but for
// conflicts: each has a line of its own.
func (f serviceFilter) listed(all []bridge.ServiceStatus) (list []bridge.ServiceStatus, more int) {
	if !f.short() {
		return all, 0
	}
	list = filtered(all, func(s bridge.ServiceStatus) bool { return !s.Reason.Done() && s.Reason != bridge.ReasonConflict })
	slices.SortStableFunc(list, func(a, b bridge.ServiceStatus) int { return b.Reason.Compare(a.Reason) })
	most := min(len(list), shownEntries)
	return list[:most], len(list) - most
}

// filtered returns the elements that fit, as a new slice.
func filtered[T any](all []T, fits func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return !fits(x) })
}

func texts[T ~string](all []T) []string {
	list := make([]string, len(all))
	for i, x := range all {
		list[i] = string(x)
	}
	return list
}

// printUndecided shows what an operator may have to decide about: holds, entries that stay,
// conflicts, and addresses that register themselves under other names.
func printUndecided(t *terminal, d admin.Document, f serviceFilter) {
	for _, l := range d.Loops {
		for _, h := range l.Holds {
			t.warn("hold %s of %s: %s", h.ID, h.Bridge, holdText(d.Time, h))
		}
		for _, k := range l.Kept {
			t.warn("%s of ours %s in %s: %s%s", registry.Counted(k.Entries, "entry", "entries"), stay(k.Entries), l.Target, k.Why, until(d.Time, k.Until))
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

// printConflicting shows the services of a target that have a conflict, one a line.
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

// printServices counts the services of each bridge by their reasons, and lists some.
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
		rows.row(s.Bridge, string(s.Service), string(s.Reason), strconv.Itoa(s.Entries), ago(d.Time, s.LastWrite), brief(cmp.Or(s.Detail, s.LastError)))
	}
	rows.end()
	if more > 0 {
		t.say("%s not synced; list them with --all or --reason", registry.Counted(more, "more service is", "more services are"))
	}
}

// reasonsText counts services by reason, the worst first.
func reasonsText(count map[bridge.Reason]int) string {
	var all []string
	for _, r := range slices.Backward(bridge.Reasons()) {
		if n := count[r]; n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, r))
		}
	}
	return strings.Join(all, ", ")
}
