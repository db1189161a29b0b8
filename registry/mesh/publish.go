package mesh

import (
	"errors"
	"slices"

	"github.com/xds-bridge/xds-bridge/registry"
)

// publish writes the changes into the table. Nothing is removed before the stream has reported
// everything. Then the table is replaced.
func (j *joiner) publish(changes []rowChange) {
	changed, removed := changedServices(changes)
	for _, c := range changes {
		j.reportRow(c)
	}
	for name, reason := range j.state.skipped {
		j.table.Skip(name, reason)
	}
	clear(j.state.skipped)
	replace := !j.compared && j.clustersComplete && j.mappingComplete && len(j.pendingEndpoints) == 0
	if j.compared {
		// If all services are missing at once, istiod more likely lost sight of them. A
		// replacement is weaker evidence than a reported removal.
		replace = len(j.state.hosts) == 0 && len(changes) > 0
	}
	if replace || !j.compared {
		removed = nil
	}
	j.table.Apply(changed, removed)
	if replace {
		j.replaceTable()
	}
	j.reportInterest(changes)
}

// changedServices returns the new and changed services, and the names of those whose removal
// was reported.
func changedServices(changes []rowChange) (changed []*registry.Service, removed []registry.Name) {
	for _, c := range changes {
		switch {
		case c.now.service != nil && c.now.service != c.before.service:
			changed = append(changed, c.now.service)
		case c.now.service == nil && c.now.unknown == nil && c.before.service != nil:
			removed = append(removed, c.name())
		}
	}
	return changed, removed
}

// reportRow reports the left out parts of a row, and why it is unknown. Before the table is
// synced, pending endpoints are not reported.
func (j *joiner) reportRow(c rowChange) {
	if _, inherited := j.inherited[c.name()]; inherited && c.now.service != nil {
		j.releaseInherited(c.name())
	}
	if c.now.skipped != c.before.skipped {
		j.table.Omit(string(c.name()), c.now.skipped)
	}
	isPending := !j.synced && (c.now.unknown == nil || errors.Is(c.now.unknown, errEndpointsPending)) &&
		(c.before.unknown == nil || errors.Is(c.before.unknown, errEndpointsPending))
	if !isPending && !errors.Is(c.now.unknown, c.before.unknown) {
		j.table.Unknown(string(c.name()), c.now.unknown)
	}
}

// replaceTable replaces all rows of the table.
func (j *joiner) replaceTable() {
	services := j.state.services()
	j.table.Replace(slices.Values(slices.Concat(services, j.inheritedRows(services))))
	if !j.synced {
		j.source.o.Log.Info("mesh synced", "services", len(services), "epoch", j.epoch)
	}
	j.synced, j.compared = true, true
}

// inheritedRows returns rows of the previous source that this one never reported, and reports
// them as unknown. There are none unless service keys may be missing: the missing ones may
// belong to these rows.
func (j *joiner) inheritedRows(services []*registry.Service) (rows []*registry.Service) {
	if j.keysMissing == nil || j.synced && len(j.inherited) == 0 {
		return nil
	}
	table, _ := j.table.Snapshot()
	for _, s := range services {
		delete(table, s.Name)
	}
	for name, s := range table {
		if _, inherited := j.inherited[name]; inherited || !j.synced {
			j.inherited[name] = struct{}{}
			j.table.Unknown(string(name), j.keysMissing)
			rows = append(rows, s)
		}
	}
	return rows
}

// releaseInherited ends the inheritance of a row, and reports it as known.
func (j *joiner) releaseInherited(name registry.Name) {
	delete(j.inherited, name)
	j.table.Unknown(string(name), nil)
}
