package app

import (
	"context"
	"sync/atomic"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/kind"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// A sourceTable outlives the sources of a registry: it is the table, and the source that
// fills it.
type sourceTable struct {
	table   *registry.Table
	current atomic.Pointer[boundSource]
	istiods map[string]*debug.Endpoints // of a mesh, by istiod's address: its replicas, as the mesh itself reports them
}

// sourceTables are those of all registries, by name.
type sourceTables map[string]*sourceTable

func (t sourceTables) of(name string) *sourceTable {
	if t[name] == nil {
		t[name] = &sourceTable{table: registry.NewTable(), istiods: make(map[string]*debug.Endpoints)}
	}
	return t[name]
}

func (t *sourceTable) limit(r config.Registry) {
	l := r.Settings().Limits
	t.table.Limit(registry.Limits{Services: l.MaxServices, Endpoints: l.MaxEndpoints, Bytes: int64(l.MaxBytes)}, t.recheck)
}

func (t *sourceTable) recheck() {
	if s := t.current.Load(); s != nil {
		s.Recheck()
	}
}

// untilReadable returns a function that waits until a loop may read the table: until the
// ids in marks are known, and the source of this configuration filled it. A source before
// may have left out what a bridge asks for now, such as service keys.
func (t *sourceTable) untilReadable(all ...*registryID) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, r := range all {
			if err := r.wait(ctx); err != nil {
				return err
			}
		}
		return t.table.Current(ctx)
	}
}

// replicas returns where the replicas of the istiod at an address are recorded.
func (t *sourceTable) replicas(address string) *debug.Endpoints {
	if t.istiods[address] == nil {
		t.istiods[address] = &debug.Endpoints{}
	}
	return t.istiods[address]
}

// boundSource is one source with its table. It runs once, however many bridges
// read it.
type boundSource struct {
	name, kind string
	key        string // of all that the source depends on
	*sourceTable
	kind.Source
}

func (s *boundSource) run(ctx context.Context) error {
	return wrap("source "+s.name, s.Run(ctx, s.table))
}

// problem says why a source has not reported everything, or may be out of date.
func (s *boundSource) problem() string {
	known := s.table.Summary()
	switch {
	case known.Synced && known.Stale == nil:
		return ""
	case s.State().LastError != "":
		return s.State().LastError
	case known.Stale != nil:
		return known.Stale.Error()
	}
	return "has not reported everything yet"
}
