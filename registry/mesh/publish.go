package mesh

import (
	"errors"
	"slices"

	"github.com/xds-bridge/xds-bridge/registry"
)

// publish writes the changes into the table. Nothing is removed before the stream
// reported everything; then the table is replaced.
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
		// If all services are gone at once, istiod rather cannot see them: a replacement
		// is a weaker proof than a removal.
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

// changedServices returns the services that are new or different, and those whose removal
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

// reportRow reports what was left out of a row, and what is unknown. Pending
// endpoints are not reported before the table is synced.
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

func (j *joiner) replaceTable() {
	services := j.state.services()
	j.table.Replace(slices.Values(slices.Concat(services, j.inheritedRows(services))))
	if !j.synced {
		j.source.o.Log.Info("mesh is synced", "services", len(services), "epoch", j.epoch)
	}
	j.synced, j.compared = true, true
}

// inheritedRows returns the rows of the source before that this one never reported, if
// keys may be missing: theirs may be among them. It reports them as unknown.
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

func (j *joiner) releaseInherited(name registry.Name) {
	delete(j.inherited, name)
	j.table.Unknown(string(name), nil)
}
