package bridge

import (
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge/plan"
	"github.com/xds-bridge/xds-bridge/registry"
)

// facts are what an engine knows of its sources, of its target, and of who leads.
type facts struct {
	opts      Options
	target    traits
	planner   *plan.Planner
	agenda    *agenda
	pipelines []*pipeline
	records   *records
	journal   *journal
	lead      Leadership
	dry       bool // nothing is written

	listed map[registry.Group]struct{} // the groups the target reported last; nil before that
	asOf   time.Time                   // when it was asked for them
	unread map[registry.Group]struct{} // groups listed that still have to be read once
}

// traits are what a target is, beside that it can be read and written.
type traits struct {
	shared    bool          // several replicas publish the same, and readers see the sum
	serves    bool          // what it serves may depend on what was served before
	watched   bool          // it reports what others do
	admission func() error  // what the first write waits for
	verify    time.Duration // how long after a write a group is read back; 0: not
	overlap   func(registry.Group) time.Duration
}

func traitsOf(target registry.Target, dry bool) traits { //nolint:revive // of a loop that writes nothing, not a mode
	t := traits{overlap: func(registry.Group) time.Duration { return 0 }, admission: func() error { return nil }}
	if a, ok := target.(registry.Admitted); ok {
		t.admission = a.Admission
	}
	if v, ok := target.(registry.Verified); ok {
		t.verify = v.VerifyAfter()
	}
	if o, ok := target.(registry.Overlapping); ok && !dry {
		t.overlap = o.Overlap
	}
	_, t.shared = target.(registry.Shared)
	_, t.serves = target.(registry.Serving)
	_, watched := target.(registry.Watched)
	t.watched = watched && !dry
	return t
}

// leads reports whether this replica leads.
func (f *facts) leads() bool { return f.opts.Election == nil || f.lead.Role == RoleLeader }

// acts reports whether there is something to write.
func (f *facts) acts() bool { return f.leads() || f.target.shared }

// complete reports whether every source reported everything and still does.
func (f *facts) complete() bool {
	return !slices.ContainsFunc(f.pipelines, func(p *pipeline) bool { return !p.complete() })
}

// mayJudge reports whether what the target stores is known well enough to judge
// what may be deleted: all of it was read, what is to be added was added once,
// and what an earlier process recorded is known.
func (f *facts) mayJudge() bool {
	return f.listed != nil && len(f.unread)+len(f.agenda.arrivals) == 0 && f.records.loaded
}
