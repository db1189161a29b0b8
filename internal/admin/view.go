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

// status asks a loop what it is doing and notes that it answered.
func (s *Server) status(ctx context.Context, t Target) (bridge.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, ask)
	defer cancel()
	st, err := t.Loop.Status(ctx)
	if err != nil {
		return st, fmt.Errorf("the loop of target %s does not answer: %w", t.Name, err)
	}
	st.LastError = cmp.Or(t.refused(), st.LastError)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ticked[t.Name] = time.Now()
	s.listed[t.Name] = s.listed[t.Name] || st.Listed
	return st, nil
}

// Document returns everything that is known now. A loop that does not answer
// within two seconds is shown with that as its last error.
func (s *Server) Document(ctx context.Context) Document {
	d := Document{
		Version: s.opts.Version, Owner: s.owner(), Started: s.started, Time: time.Now(),
		InSync: true, Sources: make([]Source, 0, len(s.inputs())), Targets: []TargetPeer{},
	}
	if s.opts.Replicas != nil {
		d.Replicas = s.opts.Replicas()
	}
	for _, in := range s.inputs() {
		src := source(in)
		d.Sources = append(d.Sources, src)
		d.InSync = d.InSync && src.Synced && src.Stale == ""
	}
	for _, t := range s.targets() {
		if t.State != nil {
			peer := TargetPeer{Name: t.Name, Kind: t.Kind, TargetState: t.State()}
			d.Targets = append(d.Targets, peer)
			d.InSync = d.InSync && peer.Connected // what it held may have gone with the connection
		}
		d.InSync = d.InSync && t.refused() == ""
	}
	if s.opts.Reloaded != nil {
		d.Reload = s.opts.Reloaded()
	}
	d.Loops = s.statuses(ctx)
	for _, st := range d.Loops {
		d.InSync = d.InSync && st.InSync()
	}
	d.Ready = !slices.ContainsFunc(s.ready(ctx), func(c check) bool { return c.fault != "" })
	return d
}

func (s *Server) statuses(ctx context.Context) []bridge.Status {
	all := make([]bridge.Status, 0, len(s.targets()))
	for _, t := range s.targets() {
		st, err := s.status(ctx, t)
		if err != nil {
			st = bridge.Status{LastError: err.Error()}
		}
		st.Target = cmp.Or(st.Target, t.Name)
		all = append(all, st)
	}
	return all
}

func source(in Input) Source {
	rows, known := in.Table.Snapshot()
	src := Source{
		Name: in.Name, Kind: in.Kind, Synced: known.Synced, Services: len(rows),
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
	for _, sv := range rows {
		for _, e := range sv.Endpoints {
			src.Endpoints[e.Health.String()]++
		}
	}
	if in.State != nil {
		src.SourceState = in.State()
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

// services lists the services of all bridges by target, bridge and name.
func services(all []bridge.Status) []Service {
	list := []Service{}
	for _, st := range all {
		for _, sv := range st.Services {
			list = append(list, Service{Target: st.Target, Owner: st.Owner, ServiceStatus: sv})
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
