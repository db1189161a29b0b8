package mesh

import (
	"errors"
	"slices"
)

// reportInterest reports the requested names for which the table is complete: the stream
// reported all clusters, and the endpoints of those that match the name.
func (j *joiner) reportInterest(changes []rowChange) {
	interest := j.state.naming.Interest
	if interest == nil || !j.clustersComplete || !j.mappingComplete {
		return
	}
	known := make(map[string]error)
	for _, name := range interest.Unreported() {
		known[name] = nil
	}
	for _, c := range changes { // including names that were reported before
		for _, name := range j.state.interestNames(c.address) {
			known[name] = nil
		}
	}
	for a, r := range j.state.rows {
		for _, name := range j.state.interestNames(a) {
			if _, ok := known[name]; ok && r.unknown != nil {
				known[name] = r.unknown
			}
		}
	}
	j.deletePendingNames(known)
	interest.Report(known)
}

// deletePendingNames deletes the names whose endpoints are pending.
func (j *joiner) deletePendingNames(known map[string]error) {
	for edsName := range j.pendingEndpoints {
		for _, a := range j.state.hostsByEDSName[edsName] {
			for _, name := range j.state.interestNames(a) {
				delete(known, name)
			}
		}
	}
}

// reportReplicas reports the replicas of istiod if they changed.
func (j *joiner) reportReplicas() {
	now := j.state.replicas()
	if j.source.o.Replicas != nil && len(now) > 0 && j.source.setReplicas(now) {
		j.source.o.Replicas(slices.Clone(now))
	}
}

// keysScope is the scope that is unknown while service keys may be missing. It is not a
// service. Reported services stay current meanwhile. Only entries of services that were not
// reported since our start are kept.
const keysScope = "service keys"

var errIstiodRestarted = errors.New("an istiod replica restarted recently; " +
	"some clients may not have reconnected and republished their service keys")

// reportMissingKeys reports to the table why service keys may be missing from the mapping.
func (j *joiner) reportMissingKeys() {
	err := j.mapping.Unread
	if !j.mapping.Restarting.IsZero() {
		err = errIstiodRestarted
	}
	if (err == nil) != (j.keysMissing == nil) || err != nil && err.Error() != j.keysMissing.Error() {
		j.keysMissing = err
		j.table.Unknown(keysScope, err)
	}
	if err == nil && len(j.inherited) > 0 {
		for name := range j.inherited {
			j.releaseInherited(name)
		}
		j.compared = false // replaces the table: rows that are still missing do not exist
	}
}

// logConflicts logs keys that are published for several hosts when their number grows.
func (j *joiner) logConflicts() {
	conflicts := j.mapping.Mapping.Conflicts()
	if len(conflicts) > j.loggedConflicts {
		c := conflicts[0]
		// Not a warning: every migration from one host to another does it.
		j.source.o.Log.Info("service keys are published for several hosts, using all of them",
			"keys", len(conflicts), "such_as", c.Key.String(), "hosts", len(c.Addresses))
	}
	j.loggedConflicts = len(conflicts)
}

func (j *joiner) reportStatus() {
	j.source.setStatus(Status{
		Complete: j.compared, Epoch: j.epoch, Clusters: len(j.state.hosts), Services: j.state.serviceCount,
		Requested: len(j.state.hostsByEDSName), Pending: len(j.pendingEndpoints), Mapping: j.mapping,
	})
}
