package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Watch makes every scrape read gauges from the overview of sources and loops, which no
// scrape blocks. It may be called once.
func (m *Metrics) Watch(overview func() admin.Overview) {
	s := &stateCollector{overview: overview}
	define := func(kind, name, help string, labels []string) *prometheus.Desc {
		m.define(kind, name, help, labels)
		return prometheus.NewDesc(Prefix+name, help, labels, nil)
	}
	gauge := func(name, help string, labels ...string) *prometheus.Desc { return define("gauge", name, help, labels) }
	s.info = gauge("info", "The owner and the identity of this replica; always 1.", "owner", "identity", "version")
	registries := []string{"registry", "listen", "kind", "direction"}
	s.up = gauge("registry_up",
		"Whether a registry is connected. For a served mesh: whether istiod or a data plane reads it.",
		registries...)
	s.contact = gauge("registry_last_contact_timestamp_seconds", "When a registry last answered.", registries...)
	s.reconnects = define("counter",
		"registry_reconnects_total",
		"Connections to a registry after the first one. Always 0 for Kubernetes and for a served mesh.", registries)
	s.synced = gauge("source_synced", "Whether a source has been read in full.", "registry")
	s.stale = gauge("source_stale", "Whether the data of a source may be out of date.", "registry")
	s.services = gauge("services",
		"Services that a source reports, or that bridges want to have in a target.", "registry", "listen", "role")
	s.endpoints = gauge("endpoints",
		"Endpoints of a source by health, or entries of a target by owner.",
		"registry", "listen", "role", "health")
	s.reasons = gauge("service_reasons",
		"Services of a bridge by reason. Each service has exactly one.", "registry", "listen", "bridge", "reason")
	s.invalid = gauge("invalid_inputs", "Inputs of a source that are skipped because they are invalid.", "registry")
	s.unwritable = gauge("unwritable_services",
		"Services without any endpoint that a target can store, in at least one of their formats.",
		"registry", "listen")
	s.keys = gauge("mapping_keys", "Service keys in the interface mapping of a mesh.", "registry")
	s.age = gauge("mapping_age_seconds", "Time since the interface mapping was last read in full.", "registry")
	s.queue = gauge("reconcile_queue_depth", "Groups of a target that wait for a write.", "registry", "listen")
	s.oldest = gauge("oldest_unsynced_change_seconds",
		"Age of the oldest change that is not written yet: the lag.", "registry", "listen")
	s.holds = gauge("guard_holds", "Holds: sets of deletions that the guard holds.", "registry", "listen")
	s.holdAge = gauge("guard_hold_age_seconds", "Age of the oldest hold; 0 if there is none.", "registry", "listen")
	s.denied = gauge("guard_denied_entries",
		"Entries that no source reports and that stay because an operator denied their deletion.",
		"registry", "listen")
	s.deniedAge = gauge("guard_denied_age_seconds",
		"Age of the oldest denial that keeps entries; 0 if there is none.", "registry", "listen")
	s.conflicts = gauge("conflicts",
		"Entries that cannot be written because an entry of another owner or service is in their place.",
		"registry", "listen")
	s.leads = gauge("replica_leads", "Whether this replica leads a target.", "registry")
	s.members = gauge("replica_members", "Replicas of this owner, including this one.")
	s.expected = gauge("replica_expected", "The configured number of replicas, replicas.expected.")
	s.leases = gauge("replica_leases_lost", "Leases that this replica lost because it could not renew them.")
	s.conditions = gauge("condition",
		"Whether a condition holds that keeps a source, a target or the process from being in sync.",
		"registry", "listen", "direction", "condition")
	m.registry.MustRegister(s)
}

type stateCollector struct {
	overview                                     func() admin.Overview
	info, up, contact, reconnects                *prometheus.Desc
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
		s.connection(out, src.Connection, src.Name, "", src.Kind, string(admin.OfSource))
		s.source(send, src, d.Time)
	}
	for _, t := range d.Targets {
		s.connection(out, t.Connection, t.Registry, t.Listen, t.Kind, string(admin.OfTarget))
		s.target(send, t, d.Time)
	}
	if d.Replicas != nil {
		s.replicas(send, *d.Replicas)
	}
	s.condition(send, d)
}

// connection sends the state of the connection of a source or a target.
func (s *stateCollector) connection(out chan<- prometheus.Metric, c admin.Connection, labels ...string) {
	out <- prometheus.MustNewConstMetric(s.up, prometheus.GaugeValue, one(c.Up), labels...)
	out <- prometheus.MustNewConstMetric(s.reconnects, prometheus.CounterValue, float64(c.Reconnects), labels...)
	if !c.LastContact.IsZero() {
		out <- prometheus.MustNewConstMetric(s.contact, prometheus.GaugeValue, float64(c.LastContact.UnixMilli())/1000, labels...)
	}
}

// condition sends 1 for each condition that holds, and 0 for each that could hold, so that
// an alert ends by a value of 0 and not by a missing series.
func (s *stateCollector) condition(send sender, d admin.Overview) {
	type series struct {
		subject   string
		direction admin.Direction
		name      admin.ConditionName
	}
	holds := make(map[series]bool, len(d.Conditions))
	for _, c := range d.Conditions {
		holds[series{c.Registry, c.Direction, c.Name}] = true
	}
	each := func(subject string, direction admin.Direction, name, listen string) {
		for _, c := range admin.ConditionsOf(direction) {
			send(s.conditions, one(holds[series{subject, direction, c}]), name, listen, string(direction), string(c))
		}
	}
	each("", admin.OfProcess, "", "")
	for _, src := range d.Sources {
		each(src.Name, admin.OfSource, src.Name, "")
	}
	for _, t := range d.Targets {
		each(t.Target, admin.OfTarget, t.Registry, t.Listen)
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
	send(s.services, float64(src.Services), src.Name, "", roleSource)
	for health, n := range src.Endpoints {
		if n > 0 {
			send(s.endpoints, float64(n), src.Name, "", roleSource, registry.Health(health).String()) //nolint:gosec // an index of few
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

func (s *stateCollector) target(send sender, t admin.TargetOverview, now time.Time) {
	send(s.services, float64(t.Counts.Services), t.Registry, t.Listen, roleClaimed)
	send(s.endpoints, float64(t.Owned), t.Registry, t.Listen, roleOwned, "")
	send(s.endpoints, float64(t.Foreign), t.Registry, t.Listen, roleForeign, "")
	send(s.queue, float64(t.Queue), t.Registry, t.Listen)
	send(s.oldest, t.OldestDue.Seconds(), t.Registry, t.Listen)
	send(s.conflicts, float64(t.Counts.Conflicts), t.Registry, t.Listen)
	send(s.holds, float64(t.Counts.Holds), t.Registry, t.Listen)
	send(s.holdAge, ageOf(t.Counts.HeldSince, now), t.Registry, t.Listen)
	send(s.denied, float64(t.Counts.Denied), t.Registry, t.Listen)
	send(s.deniedAge, ageOf(t.Counts.DeniedSince, now), t.Registry, t.Listen)
	unwritable := 0
	for _, b := range t.Bridges {
		for reason, n := range b.Reasons {
			send(s.reasons, float64(n), t.Registry, t.Listen, b.Name, string(reason))
		}
		unwritable += b.Reasons[bridge.ReasonUnwritable]
	}
	send(s.unwritable, float64(unwritable), t.Registry, t.Listen)
}

// ageOf returns the seconds since a time, or 0 for the zero time.
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
