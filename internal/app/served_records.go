package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// servedRecords is where what is served at one address is kept: what came from
// a registry in that registry, and all of it in the folder of state.dir, where
// there is one.
type servedRecords struct {
	places []mcp.Place
	run    []func(context.Context) error // what keeps registries reachable
	closes []func()
	tries  []tried
}

// tried is a registry of which preflight tries whether it keeps records.
type tried struct {
	registry, right string
	recorder        registry.Recorder
}

// servedRecords connects to every registry that a bridge to the address reads
// and that can keep records.
func (b *builder) servedRecords(at sinkKey, imports config.Import) (*servedRecords, error) {
	place := mcp.Place{Name: servedName(at), Index: "serving-" + metadata.Fingerprint(at.registry, 8)}
	s := &servedRecords{}
	for _, from := range distinct(leadingTo(b.cfg, at), func(x config.Bridge) string { return x.From }) {
		recorder, err := b.recorder(from, s)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("registries.%s: %w", from, err)
		}
		if recorder != nil {
			s.tries = append(s.tries, tried{from, b.recordRight(from), recorder})
			hosts := naming.MeshHosts{Registry: strings.ToLower(from), Suffix: imports.Suffix}
			place.Names = b.servedNames(at.registry, func(x config.Bridge) bool { return x.From == from })
			place.Recorder, place.Has = recorder, func(g registry.Group) bool { return hosts.Has(g.Name) }
			s.places = append(s.places, place)
		}
	}
	if dir := b.cfg.State.Dir; dir != "" {
		place.Names = b.servedNames(at.registry, func(config.Bridge) bool { return true })
		place.Recorder, place.Has = mcp.Folder{Path: dir}, nil
		s.places = append(s.places, place)
	}
	return s, nil
}

// servedName is the name under which what is served at an address is kept.
func servedName(at sinkKey) string { return "served-" + metadata.Fingerprint(at.String(), 8) }

// servedNames are those names of a mesh under which what some bridges serve is
// kept.
func (b *builder) servedNames(mesh string, which func(config.Bridge) bool) (names []string) {
	for _, x := range b.cfg.Bridges {
		if name := servedName(sinkKeyOf(x)); x.To == mesh && which(x) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// recorder connects to a registry that keeps records; nil where it keeps none.
func (b *builder) recorder(name string, s *servedRecords) (registry.Recorder, error) {
	switch r := b.cfg.Registries[name]; {
	case r.ZooKeeper != nil:
		client, err := zookeeper.Dial(b.zookeeperOptions(name, r.ZooKeeper))
		if err != nil {
			return nil, err //nolint:wrapcheck // the caller names the registry
		}
		s.closes = append(s.closes, client.Close)
		return zookeeper.NewRecorder(client, b.cfg.Owner, zookeeper.Access(r.ZooKeeper.ACL)), nil
	case r.Nacos != nil:
		client, err := nacos.New(b.nacosOptions(name, r.Nacos))
		if err != nil {
			return nil, err //nolint:wrapcheck // the caller names the registry
		}
		s.run = append(s.run, client.Run)
		return nacos.NewRecorder(client, metadata.OwnerMark(b.cfg.Owner)), nil
	default:
		return nil, nil //nolint:nilnil // a mesh keeps nothing for us
	}
}

// recordRight names the right that records in a registry need.
func (b *builder) recordRight(name string) string {
	switch r := b.cfg.Registries[name]; {
	case r.ZooKeeper != nil:
		return "let " + cmp.Or(r.ZooKeeper.User, "anybody, since no user is set,") + " create, write and delete below /xds-bridge/" + b.cfg.Owner
	case r.Nacos != nil:
		return "let " + cmp.Or(r.Nacos.Username, "anonymous clients") + " write configurations of group " + nacos.IDGroup + " in namespace " + cmp.Or(r.Nacos.Namespace, "public")
	}
	return ""
}

// check tries whether the registries keep records. Without them the bridge
// works, so that nothing fails for it.
func (s *servedRecords) check(ctx context.Context, f *findings) {
	_ = s.during(ctx, func(ctx context.Context) error {
		for _, t := range s.tries {
			try, ok := t.recorder.(interface {
				TryRecord(ctx context.Context) error
			})
			if !ok {
				continue
			}
			if err := try.TryRecord(ctx); err != nil {
				f.warn("records in "+t.registry, "a restart will take all that is served for new: its guard sees no loss, and what was held goes: "+err.Error(), t.right)
			} else {
				f.pass("records in "+t.registry, "what is served can be kept there, for a restart")
			}
		}
		return nil
	})
}

// during keeps the registries reachable for as long as work takes, which keeps
// what is served once more at its end.
func (s *servedRecords) during(ctx context.Context, work func(context.Context) error) error {
	connected, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	errs := make([]error, len(s.run))
	for i, run := range s.run {
		running.Go(func() { errs[i] = run(connected) })
	}
	err := work(ctx)
	cancel()
	running.Wait()
	return errors.Join(append(errs, err)...)
}

func (s *servedRecords) close() {
	for _, c := range s.closes {
		c()
	}
}

func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// unkept tells in the log of what could not be kept or read back, each fault
// once.
func unkept(observe func(mcp.Observation), log *slog.Logger) func(mcp.Observation) {
	var mu sync.Mutex
	last := ""
	return func(o mcp.Observation) {
		observe(o)
		if o.Kind != mcp.ObservedState {
			return
		}
		mu.Lock()
		isNew := last != o.Err.Error()
		last = o.Err.Error()
		mu.Unlock()
		if isNew {
			log.Warn("a restart may not know what was served", "err", o.Err)
		}
	}
}
