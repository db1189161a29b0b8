package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A reporter reports what the bridge is doing, from its loops and tables. It is safe for
// concurrent use.
type reporter struct {
	// Immutable.
	opts    Options // without Owner, Inputs and Targets: see deployment
	started time.Time

	// Guarded by mu.
	mu         sync.Mutex
	deployment deployment
	answered   map[string]time.Time    // when each loop last answered, by the name of its target
	since      map[Condition]time.Time // when each present condition began, by its key
	passed     map[string]bool         // the checks of ready that passed once, by name
}

func newReporter(o Options) *reporter {
	rep := &reporter{opts: o, started: time.Now(), passed: make(map[string]bool)}
	rep.Show(o.Owner, o.Inputs, o.Targets)
	return rep
}

// A deployment is the part of the options that a reload replaces. It is immutable.
type deployment struct {
	owner   string
	inputs  []Input
	targets []Target
}

// Show replaces what is reported after a reload of the configuration. Sources and targets
// that were ready remain so if they keep their names.
func (rep *reporter) Show(owner string, inputs []Input, targets []Target) {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	rep.deployment = deployment{owner, slices.Clone(inputs), slices.Clone(targets)}
	before := rep.answered
	rep.answered = make(map[string]time.Time, len(targets))
	for _, t := range targets {
		if at, known := before[t.Name]; known {
			rep.answered[t.Name] = at
		} else {
			rep.answered[t.Name] = time.Now()
		}
	}
}

// current returns the present deployment.
func (rep *reporter) current() deployment {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	return rep.deployment
}

// askLoop waits until a loop answers, and records the time. It returns an error if the loop
// does not answer within askTimeout.
func (rep *reporter) askLoop(ctx context.Context, t Target) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := t.Loop.Alive(ctx); err != nil {
		return fmt.Errorf("loop of target %s does not answer: %w", t.Name, err)
	}
	rep.mu.Lock()
	defer rep.mu.Unlock()
	rep.answered[t.Name] = time.Now()
	return nil
}

// askLoops asks all loops at the same time, so that a silent loop does not delay the
// others. It returns an error, or nil, for each target.
func (rep *reporter) askLoops(ctx context.Context, targets []Target) []error {
	errs := make([]error, len(targets))
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() { errs[i] = rep.askLoop(ctx, t) })
	}
	wg.Wait()
	return errs
}

func (t Target) summary() bridge.Status { return t.complete(t.Loop.Summary()) }

// complete returns the status of the target's loop with the name of the target. If the
// target may not be written, the last error is the reason.
func (t Target) complete(st bridge.Status) bridge.Status {
	st.Target = cmp.Or(st.Target, t.Name)
	st.LastError = cmp.Or(t.State().Refused, st.LastError)
	return st
}

// Overview returns the state of sources and loops in numbers. It waits for no loop, and its
// cost does not depend on the number of services.
func (rep *reporter) Overview() Overview {
	now := time.Now()
	o := Overview{Time: now, Owner: rep.current().owner, Version: rep.opts.Version}
	if rep.opts.Replicas != nil {
		o.Replicas = rep.opts.Replicas()
	}
	for _, in := range rep.current().inputs {
		state := in.State()
		o.Sources = append(o.Sources, SourceOverview{
			Name: in.Name, Kind: in.Kind, Summary: in.Table.Summary(), Mapping: state.Mapping,
			Connection: state.connection(now),
		})
	}
	var loops []bridge.Status
	for _, t := range rep.current().targets {
		state, st := t.State(), t.summary()
		loops = append(loops, st)
		o.Targets = append(o.Targets, TargetOverview{
			Registry: t.Registry, Listen: t.Listen, Kind: t.Kind, Status: st,
			Connection: state.connection(now),
		})
	}
	o.Conditions = rep.conditions(loops, o.Replicas)
	return o
}

func (s SourceState) connection(now time.Time) Connection {
	return Connection{Up: s.Connected, Reconnects: s.Reconnects, LastContact: s.LastContact}.heardAt(s.Heard, now)
}

func (s TargetState) connection(now time.Time) Connection {
	return Connection{Up: s.Connected, Reconnects: s.Reconnects, LastContact: s.Since}.heardAt(s.Heard, now)
}

// heardAt returns the connection with the last contact if it is up. This is when the
// registry was heard, or now if its client checks the connection every few seconds.
func (c Connection) heardAt(heard, now time.Time) Connection {
	if c.Up {
		c.LastContact = cmp.Or(heard, now)
	}
	return c
}

// statuses returns the status of each loop. If a loop does not answer, its status has only
// that as its last error.
func (rep *reporter) statuses(ctx context.Context) []bridge.Status {
	targets := rep.current().targets
	all := make([]bridge.Status, len(targets))
	for i, err := range rep.askLoops(ctx, targets) {
		if err != nil {
			all[i].LastError = err.Error()
		} else {
			all[i] = targets[i].Loop.Status()
		}
		all[i] = targets[i].complete(all[i])
	}
	return all
}

// sourceOf returns the state of a source.
func sourceOf(in Input) Source {
	certainty, sum := in.Table.Certainty(), in.Table.Summary()
	src := Source{
		Name: in.Name, Kind: in.Kind, Synced: certainty.Synced, Services: sum.Services,
		Endpoints: make(map[string]int), Skipped: skippedInputs(in.Table), SourceState: in.State(),
	}
	if certainty.Stale != nil {
		src.Stale = certainty.Stale.Error()
	}
	for scope, err := range certainty.Unknown {
		if src.Unknown == nil {
			src.Unknown = make(map[string]string, len(certainty.Unknown))
		}
		src.Unknown[scope] = err.Error()
	}
	for health, n := range sum.Endpoints {
		if n > 0 {
			src.Endpoints[registry.Health(health).String()] = n //nolint:gosec // a small index
		}
	}
	src.LastContact = src.connection(time.Now()).LastContact
	return src
}

// omittedInputs returns all inputs that a source leaves out, also those that the
// configuration excludes.
func omittedInputs(t *registry.Table) []Skipped {
	reasons := make(map[string]string)
	for input, o := range t.Omitted() {
		reasons[input] = o.Reason
	}
	return sortedByInput(reasons)
}

// skippedInputs returns the inputs that a source leaves out though the configuration does
// not exclude them.
func skippedInputs(t *registry.Table) []Skipped { return sortedByInput(t.Skipped()) }

func sortedByInput(reasons map[string]string) []Skipped {
	all := make([]Skipped, 0, len(reasons))
	for _, input := range slices.Sorted(maps.Keys(reasons)) {
		all = append(all, Skipped{Input: input, Reason: reasons[input]})
	}
	return all
}

// servicesOf returns the services of all loops, ordered by their cursors.
func servicesOf(owner string, all []bridge.Status) []Service {
	list := []Service{}
	for _, st := range all {
		for _, sv := range st.Services {
			list = append(list, Service{Target: st.Target, Owner: owner, ServiceStatus: sv})
		}
	}
	slices.SortStableFunc(list, func(a, b Service) int { return cmp.Compare(a.cursor(), b.cursor()) })
	return list
}

// cursor returns the position of a service in a list of pages. None of its parts contains
// a NUL.
func (s Service) cursor() string {
	return s.Target + "\x00" + s.Bridge + "\x00" + string(s.Service)
}

func holdsOf(all []bridge.Status) []Hold {
	list := []Hold{}
	for _, st := range all {
		for _, h := range st.Holds {
			list = append(list, Hold{Target: st.Target, Hold: h})
		}
	}
	return list
}

func conflictsOf(all []bridge.Status) []Conflict {
	list := []Conflict{}
	for _, st := range all {
		for _, c := range st.Conflicts {
			list = append(list, Conflict{Target: st.Target, Conflict: c})
		}
	}
	return list
}
