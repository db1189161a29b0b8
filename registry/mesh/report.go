package mesh

import (
	"errors"
	"slices"
)

// reportInterest reports the names of which the table shows everything: the stream
// reported all clusters, and the endpoints of those that the name means.
func (j *joiner) reportInterest(changes []rowChange) {
	interest := j.state.naming.Interest
	if interest == nil || !j.clustersComplete || !j.mappingComplete {
		return
	}
	known := make(map[string]error)
	for _, name := range interest.Unreported() {
		known[name] = nil
	}
	for _, c := range changes { // names that were reported before
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

// deletePendingNames deletes the names with pending endpoints.
func (j *joiner) deletePendingNames(known map[string]error) {
	for edsName := range j.pendingEndpoints {
		for _, a := range j.state.hostsByEDSName[edsName] {
			for _, name := range j.state.interestNames(a) {
				delete(known, name)
			}
		}
	}
}

func (j *joiner) reportReplicas() {
	now := j.state.replicas()
	if j.source.o.Replicas != nil && len(now) > 0 && j.source.setReplicas(now) {
		j.source.o.Replicas(slices.Clone(now))
	}
}

// keysScope is the scope that is unknown while keys may be missing. It is no
// service: known services are kept current, and only entries of services that were
// never reported since our start are kept.
const keysScope = "service keys"

var errIstiodRestarted = errors.New("an istiod came up lately, and its clients may not all have come back to publish their service keys")

// reportMissingKeys reports whether keys may be missing from a complete mapping.
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
		j.compared = false // what is missing by now does not exist
	}
}

func (j *joiner) logConflicts() {
	conflicts := j.mapping.Mapping.Conflicts()
	if len(conflicts) > j.loggedConflicts {
		c := conflicts[0]
		j.source.o.Log.Info("service keys are published for several hosts, all of them are used", // as in each migration
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
