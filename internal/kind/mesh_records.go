package kind

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
)

// meshRecords are the stores of what is served at one address. Each registry stores what
// came from it. The directory state.dir, if set, stores everything.
type meshRecords struct {
	stores      []mcp.PersistentStore
	connections []*recordStore
}

// newMeshRecords connects to every registry that a bridge to the address reads and that
// can store records.
func newMeshRecords(e *Env, at config.TargetKey, imports config.Import) (*meshRecords, error) {
	store := mcp.PersistentStore{Name: recordName(at), Index: "serving-" + metadata.Fingerprint(at.Registry, 8)}
	s := &meshRecords{}
	read := make(map[string]bool)
	for _, x := range e.Config.BridgesTo(at) {
		from := x.From
		if read[from] {
			continue
		}
		read[from] = true
		records := Of(e.Config.Registries[from]).Facilities().records
		if records == nil {
			continue
		}
		connection, err := records(e, from)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("registries.%s: %w", from, err)
		}
		hosts := naming.MeshHosts{Registry: strings.ToLower(from), Suffix: imports.Suffix}
		store.Names = recordNames(e.Config, at.Registry, func(x config.Bridge) bool { return x.From == from })
		store.Recorder, store.Has = connection, func(g registry.Group) bool { return hosts.Has(g.Name) }
		s.stores, s.connections = append(s.stores, store), append(s.connections, connection)
	}
	if dir := e.Config.State.Dir; dir != "" {
		store.Names = recordNames(e.Config, at.Registry, func(config.Bridge) bool { return true })
		store.Recorder, store.Has = mcp.DirRecorder{Path: dir}, nil
		s.stores = append(s.stores, store)
	}
	return s, nil
}

// recordName returns the name of the records of an address. It must not change between
// versions.
func recordName(at config.TargetKey) string {
	return "served-" + metadata.Fingerprint(at.Registry+at.Listen, 8)
}

// recordNames returns the names of the records of a mesh, for the bridges that match.
func recordNames(cfg *config.Config, mesh string, matches func(config.Bridge) bool) (names []string) {
	for _, x := range cfg.Bridges {
		if name := recordName(x.Target()); x.To == mesh && matches(x) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Check reports whether the registries can store records. It only warns, because the
// bridge works without records.
func (s *meshRecords) Check(ctx context.Context, f *preflight.Findings) {
	_ = s.runWhile(ctx, func(ctx context.Context) error {
		for _, c := range s.connections {
			checkRecords(ctx, f, c)
		}
		return nil
	})
}

// checkRecords reports whether a registry stores a record, by storing one.
func checkRecords(ctx context.Context, f *preflight.Findings, r *recordStore) {
	if err := r.try(ctx); err != nil {
		f.Warn("records in "+r.name,
			"after a restart, all served entries count as new: the guard sees no loss, and held entries are lost: "+err.Error(),
			preflight.RightRemedy(err, r.permission))
	} else {
		f.Pass("records in "+r.name, "what is served can be stored there for a restart")
	}
}

// runWhile keeps the registries reachable until work returns. work writes the records once
// more before it returns, even after ctx ends.
func (s *meshRecords) runWhile(ctx context.Context, work func(context.Context) error) error {
	connected, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	errs := make([]error, len(s.connections))
	for i, c := range s.connections {
		running.Go(func() { errs[i] = c.run(connected) })
	}
	err := work(ctx)
	cancel()
	running.Wait()
	return errors.Join(append(errs, err)...)
}

func (s *meshRecords) Close() {
	for _, c := range s.connections {
		c.close()
	}
}

// logStateErrors logs errors of writing or reading records. It does not repeat the last
// error.
func logStateErrors(observe func(mcp.Observation), log *slog.Logger) func(mcp.Observation) {
	var mu sync.Mutex
	last := ""
	return func(o mcp.Observation) {
		observe(o)
		if o.Kind != mcp.ObservedPersistence {
			return
		}
		mu.Lock()
		isNew := last != o.Err.Error()
		last = o.Err.Error()
		mu.Unlock()
		if isNew {
			log.Warn("could not persist what is served; a restart would start from nothing", "err", o.Err)
		}
	}
}
