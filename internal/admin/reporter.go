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

// A reporter answers what the bridge is doing, from its loops and tables.
type reporter struct {
	opts    Options // but for Owner, Inputs and Targets
	started time.Time

	mu         sync.Mutex
	deployment deployment
	answered   map[string]time.Time    // when each loop last answered, by target
	since      map[Condition]time.Time // when each condition began, by its key
	passed     map[string]bool         // checks of ready that passed once, by name
}

func newReporter(o Options) *reporter {
	rep := &reporter{opts: o, started: time.Now(), passed: make(map[string]bool)}
	rep.Show(o.Owner, o.Inputs, o.Targets)
	return rep
}

// shown is what a reload replaces.
type deployment struct {
	owner   string
	inputs  []Input
	targets []Target
}

// Show replaces what is reported, after the configuration was reloaded. What was ready
// once stays so under its name.
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

func (rep *reporter) current() deployment {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	return rep.deployment
}

// alive asks a loop whether it answers, and records when it did.
func (rep *reporter) askLoop(ctx context.Context, t Target) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := t.Loop.Alive(ctx); err != nil {
		return fmt.Errorf("the loop of target %s does not answer: %w", t.Name, err)
	}
	rep.mu.Lock()
	defer rep.mu.Unlock()
	rep.answered[t.Name] = time.Now()
	return nil
}

// ask asks all loops at the same time whether they answer, and returns the errors in
// their order: one that is silent delays none of the others.
func (rep *reporter) askLoops(ctx context.Context, targets []Target) []error {
	errs := make([]error, len(targets))
	var asking sync.WaitGroup
	for i, t := range targets {
		asking.Go(func() { errs[i] = rep.askLoop(ctx, t) })
	}
	asking.Wait()
	return errs
}

func (t Target) summary() bridge.Status { return t.complete(t.Loop.Summary()) }

// named returns a status of a loop as that of a target.
func (t Target) complete(st bridge.Status) bridge.Status {
	st.Target = cmp.Or(st.Target, t.Name)
	st.LastError = cmp.Or(t.State().Refused, st.LastError)
	return st
}

// Overview returns the state of sources and loops, in numbers. It waits for no loop, and
// costs the same however much they hold.
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

// heardAt returns a connection with the time of the last contact where it is up: when the
// registry was heard, or now where its client makes sure of that every few seconds.
func (c Connection) heardAt(heard, now time.Time) Connection {
	if c.Up {
		c.LastContact = cmp.Or(heard, now)
	}
	return c
}

// statuses returns what every loop shows that answers; of one that does not there
// is that as its last error.
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

func sourceOf(in Input) Source {
	known, sum := in.Table.Certainty(), in.Table.Summary()
	src := Source{
		Name: in.Name, Kind: in.Kind, Synced: known.Synced, Services: sum.Services,
		Endpoints: make(map[string]int), Skipped: skippedInputs(in.Table), SourceState: in.State(),
	}
	if known.Stale != nil {
		src.Stale = known.Stale.Error()
	}
	for scope, err := range known.Unknown {
		if src.Unknown == nil {
			src.Unknown = make(map[string]string, len(known.Unknown))
		}
		src.Unknown[scope] = err.Error()
	}
	for health, n := range sum.Endpoints {
		if n > 0 {
			src.Endpoints[registry.Health(health).String()] = n //nolint:gosec // an index of few
		}
	}
	src.LastContact = src.connection(time.Now()).LastContact
	return src
}

// omitted returns all inputs that a source leaves out, and skipped those that a person
// did not ask to be left out.
func omittedInputs(t *registry.Table) []Skipped {
	reasons := make(map[string]string)
	for input, o := range t.Omitted() {
		reasons[input] = o.Reason
	}
	return sortedByInput(reasons)
}

func skippedInputs(t *registry.Table) []Skipped { return sortedByInput(t.Skipped()) }

func sortedByInput(reasons map[string]string) []Skipped {
	all := make([]Skipped, 0, len(reasons))
	for _, input := range slices.Sorted(maps.Keys(reasons)) {
		all = append(all, Skipped{Input: input, Reason: reasons[input]})
	}
	return all
}

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

// cursor orders services and says where a page ends. No part can hold a NUL.
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
