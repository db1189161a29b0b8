package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry"
)

// alive asks a loop whether it answers, and records when it did.
func (s *Server) alive(ctx context.Context, t Target) error {
	ctx, cancel := context.WithTimeout(ctx, ask)
	defer cancel()
	if err := t.Loop.Alive(ctx); err != nil {
		return fmt.Errorf("the loop of target %s does not answer: %w", t.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ticked[t.Name] = time.Now()
	return nil
}

// summary returns what a loop last showed of itself.
func (*Server) summary(t Target) bridge.Status { return t.named(t.Loop.Summary()) }

// named returns a status of a loop as that of a target.
func (t Target) named(st bridge.Status) bridge.Status {
	st.Target = cmp.Or(st.Target, t.Name)
	st.LastError = cmp.Or(t.refused(), st.LastError)
	return st
}

// Overview returns the state of sources and loops, in numbers. It waits for no loop, and
// costs the same however much they hold.
func (s *Server) Overview() Overview {
	o := Overview{Time: time.Now()}
	if s.opts.Replicas != nil {
		o.Replicas = s.opts.Replicas()
	}
	for _, in := range s.inputs() {
		src := SourceOverview{Name: in.Name, Summary: in.Table.Summary()}
		if in.State != nil {
			src.Mapping = in.State().Mapping
		}
		o.Sources = append(o.Sources, src)
	}
	for _, t := range s.targets() {
		o.Loops = append(o.Loops, s.summary(t))
	}
	o.Conditions = s.conditions(o.Loops, o.Replicas)
	return o
}

// Document returns everything that is known now. A loop that does not answer
// within two seconds is shown with that as its last error.
func (s *Server) Document(ctx context.Context) Document {
	d := Document{
		Version: s.opts.Version, Owner: s.owner(), Started: s.started, Time: time.Now(),
		Sources: make([]Source, 0, len(s.inputs())), Targets: []TargetStatus{},
	}
	if s.opts.Replicas != nil {
		d.Replicas = s.opts.Replicas()
	}
	for _, in := range s.inputs() {
		d.Sources = append(d.Sources, source(in))
	}
	for _, t := range s.targets() {
		if t.State != nil {
			d.Targets = append(d.Targets, TargetStatus{Name: t.Name, Kind: t.Kind, TargetState: t.State()})
		}
	}
	if s.opts.Reloaded != nil {
		d.Reload = s.opts.Reloaded()
	}
	d.Loops = s.statuses(ctx)
	d.Conditions = s.conditions(d.Loops, d.Replicas)
	d.InSync = !slices.ContainsFunc(d.Conditions, Condition.Lasts)
	d.Ready = !slices.ContainsFunc(s.ready(ctx), func(c check) bool { return c.problem != "" })
	return d
}

// statuses returns what every loop shows that answers; of one that does not there
// is that as its last error.
func (s *Server) statuses(ctx context.Context) []bridge.Status {
	all := make([]bridge.Status, 0, len(s.targets()))
	ctx, cancel := context.WithTimeout(ctx, read)
	defer cancel()
	for _, t := range s.targets() {
		if err := s.alive(ctx, t); err != nil {
			all = append(all, t.named(bridge.Status{LastError: err.Error()}))
			continue
		}
		all = append(all, t.named(t.Loop.Status()))
	}
	return all
}

func source(in Input) Source {
	known, sum := in.Table.Certainty(), in.Table.Summary()
	src := Source{
		Name: in.Name, Kind: in.Kind, Synced: known.Synced, Services: sum.Services,
		Endpoints: make(map[string]int), Skipped: skipped(in.Table),
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
	if in.State != nil {
		src.SourceState = in.State()
		if src.Connected { // which its client makes sure of every few seconds
			src.LastContact = time.Now()
		}
	}
	return src
}

func skipped(t *registry.Table) []Skipped {
	reasons := t.Skipped()
	all := make([]Skipped, 0, len(reasons))
	for _, input := range slices.Sorted(maps.Keys(reasons)) {
		all = append(all, Skipped{Input: input, Reason: reasons[input]})
	}
	return all
}

// services lists the services of all bridges of an owner by target, bridge and
// name.
func services(owner string, all []bridge.Status) []Service {
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

func holds(all []bridge.Status) []Hold {
	list := []Hold{}
	for _, st := range all {
		for _, h := range st.Holds {
			list = append(list, Hold{Target: st.Target, Hold: h})
		}
	}
	return list
}

func conflicts(all []bridge.Status) []Conflict {
	list := []Conflict{}
	for _, st := range all {
		for _, c := range st.Conflicts {
			list = append(list, Conflict{Target: st.Target, Conflict: c})
		}
	}
	return list
}
