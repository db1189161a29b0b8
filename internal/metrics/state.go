package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Watch makes every scrape read gauges from what sources and loops show of
// themselves as they go, so that no scrape makes them wait. It may be called
// once.
func (m *Metrics) Watch(overview func() admin.Overview) {
	s := &stateCollector{overview: overview}
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		m.define("gauge", name, help, labels)
		return prometheus.NewDesc(Prefix+name, help, labels, nil)
	}
	s.info = gauge("info", "Whose entries this process writes, and which replica it is; always 1.", "owner", "identity", "version")
	s.synced = gauge("source_synced", "Whether a source reported everything once.", "registry")
	s.stale = gauge("source_stale", "Whether what a source reported may be out of date.", "registry")
	s.services = gauge("services", "Services that a source reports, or that bridges claim in a target.", "registry", "role")
	s.endpoints = gauge("endpoints", "Endpoints of a source by health; entries of a target, ours and others'.", "registry", "role", "health")
	s.reasons = gauge("service_reasons", "Services of a bridge by the one reason each has.", "registry", "bridge", "reason")
	s.invalid = gauge("invalid_inputs", "Inputs of a source that are left out because something is wrong with them.", "registry")
	s.unwritable = gauge("unwritable_services", "Services of which no endpoint can be written to a target, in one of their formats at least.", "registry")
	s.keys = gauge("mapping_keys", "Service keys in the interface mapping of a mesh.", "registry")
	s.age = gauge("mapping_age_seconds", "Time since the interface mapping was last read as a whole.", "registry")
	s.queue = gauge("reconcile_queue_depth", "Groups of a target that are due now.", "registry")
	s.oldest = gauge("oldest_unsynced_change_seconds", "How long the first of them has been due: the true lag.", "registry")
	s.holds = gauge("guard_holds", "Sets of deletions that are held back.", "registry")
	s.holdAge = gauge("guard_hold_age_seconds", "How long the oldest of them has been held.", "registry")
	s.denied = gauge("guard_denied_entries", "Entries that no source reports and that stay because a person denied that they are deleted.", "registry")
	s.deniedAge = gauge("guard_denied_age_seconds", "Age of the oldest denial that keeps entries; 0: there is none.", "registry")
	s.conflicts = gauge("conflicts", "Claims that cannot be honoured.", "registry")
	s.leads = gauge("replica_leads", "Whether this replica leads a target.", "registry")
	s.members = gauge("replica_members", "Replicas of this owner, this one included.")
	s.expected = gauge("replica_expected", "How many replicas there should be: replicas.expected.")
	s.leases = gauge("replica_leases_lost", "Times that this replica could not renew its lease, and stopped writing.")
	s.conditions = gauge("condition", "Whether something keeps a source, a target or the process from being in sync.", "registry", "direction", "condition")
	m.registry.MustRegister(s)
}

type stateCollector struct {
	overview                                     func() admin.Overview
	info                                         *prometheus.Desc
	synced, stale, services, endpoints, reasons  *prometheus.Desc
	invalid, unwritable, keys, age               *prometheus.Desc
	queue, oldest, holds, holdAge, conflicts     *prometheus.Desc
	denied, deniedAge                            *prometheus.Desc
	leads, members, expected, leases, conditions *prometheus.Desc
}

// Describe sends nothing: the overview reports which registries there are.
func (*stateCollector) Describe(chan<- *prometheus.Desc) {}

// Collect reads the overview.
func (s *stateCollector) Collect(out chan<- prometheus.Metric) {
	d := s.overview()
	send := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	identity := ""
	if d.Replicas != nil {
		identity = d.Replicas.Identity
	}
	send(s.info, 1, d.Owner, identity, d.Version)
	for _, src := range d.Sources {
		s.source(send, src, d.Time)
	}
	for _, st := range d.Loops {
		s.loop(send, st, d.Time)
	}
	if d.Replicas != nil {
		s.replicas(send, *d.Replicas)
	}
	s.condition(send, d)
}

// condition sends 1 of each condition that holds, and 0 of those that may, so
// that no series ends where an alert should.
func (s *stateCollector) condition(send sender, d admin.Overview) {
	type series struct {
		subject   string
		direction admin.Direction
		name      admin.ConditionName
	}
	all := make(map[series]bool)
	may := func(subject string, direction admin.Direction) {
		for _, name := range admin.ConditionsOf(direction) {
			all[series{subject, direction, name}] = false
		}
	}
	may("", admin.OfProcess)
	for _, src := range d.Sources {
		may(src.Name, admin.OfSource)
	}
	for _, st := range d.Loops {
		may(st.Target, admin.OfTarget)
	}
	for _, c := range d.Conditions {
		all[series{c.Registry, c.Direction, c.Name}] = true
	}
	for of, holds := range all {
		send(s.conditions, one(holds), of.subject, string(of.direction), string(of.name))
	}
}

func (s *stateCollector) replicas(send sender, r admin.Replicas) {
	for _, e := range r.Elections {
		send(s.leads, one(e.Role == bridge.RoleLeader), e.Target)
	}
	send(s.members, float64(len(r.Members)))
	send(s.expected, float64(r.Expected))
	send(s.leases, float64(r.Lost))
}

type sender func(desc *prometheus.Desc, value float64, labels ...string)

func (s *stateCollector) source(send sender, src admin.SourceOverview, now time.Time) {
	send(s.synced, one(src.Synced), src.Name)
	send(s.stale, one(src.Stale != nil), src.Name)
	send(s.services, float64(src.Services), src.Name, "source")
	for health, n := range src.Endpoints {
		if n > 0 {
			send(s.endpoints, float64(n), src.Name, "source", registry.Health(health).String()) //nolint:gosec // an index of few
		}
	}
	send(s.invalid, float64(src.Defects), src.Name)
	if src.Mapping == nil {
		return
	}
	send(s.keys, float64(src.Mapping.Keys), src.Name)
	if !src.Mapping.LastRead.IsZero() {
		send(s.age, now.Sub(src.Mapping.LastRead).Seconds(), src.Name)
	}
}

func (s *stateCollector) loop(send sender, st bridge.Status, now time.Time) {
	send(s.services, float64(st.Counts.Services), st.Target, "claimed")
	send(s.endpoints, float64(st.Owned), st.Target, "owned", "")
	send(s.endpoints, float64(st.Foreign), st.Target, "foreign", "")
	send(s.queue, float64(st.Queue), st.Target)
	send(s.oldest, st.OldestDue.Seconds(), st.Target)
	send(s.conflicts, float64(st.Counts.Conflicts), st.Target)
	send(s.holds, float64(st.Counts.Holds), st.Target)
	send(s.holdAge, ageOf(st.Counts.HeldSince, now), st.Target)
	send(s.denied, float64(st.Counts.Denied), st.Target)
	send(s.deniedAge, ageOf(st.Counts.DeniedSince, now), st.Target)
	unwritable := 0
	for _, b := range st.Bridges {
		for reason, n := range b.Reasons {
			send(s.reasons, float64(n), st.Target, b.Name, string(reason))
		}
		unwritable += b.Reasons[bridge.ReasonUnwritable]
	}
	send(s.unwritable, float64(unwritable), st.Target)
}

// ageOf returns for how many seconds something has lasted; 0 where it does not.
func ageOf(since, now time.Time) float64 {
	if since.IsZero() {
		return 0
	}
	return max(0, now.Sub(since).Seconds())
}

func one(yes bool) float64 { //nolint:revive // a flag is what it translates
	if yes {
		return 1
	}
	return 0
}
