package main

import (
	"context"
	"sync/atomic"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// feed is what outlives the sources of a registry: the table, and which of
// them fills it.
type feed struct {
	table   *registry.Table
	current atomic.Pointer[input]
	istiods map[string]*debug.Endpoints // of a mesh, by istiod's address: its replicas, as the mesh itself tells them
}

// feed returns the feed of a registry.
func (b *builder) feed(name string) *feed {
	if b.feeds[name] == nil {
		b.feeds[name] = &feed{table: registry.NewTable(), istiods: make(map[string]*debug.Endpoints)}
	}
	return b.feeds[name]
}

// limit bounds what the table of a registry holds.
func (f *feed) limit(r config.Registry) {
	l := limits(r)
	f.table.Limit(registry.Limits{Services: l.MaxServices, Endpoints: l.MaxEndpoints, Bytes: int64(l.MaxBytes)}, f.recheck)
}

// limits returns the bounds of a registry.
func limits(r config.Registry) config.Limits {
	switch {
	case r.Istiod != nil:
		return r.Istiod.Limits
	case r.ZooKeeper != nil:
		return r.ZooKeeper.Limits
	case r.Nacos != nil:
		return r.Nacos.Limits
	}
	return config.Limits{}
}

// recheck asks for a fresh reading.
func (f *feed) recheck() {
	if in := f.current.Load(); in != nil && in.again != nil {
		in.again()
	}
}

// begin returns what waits until the table may be read by a loop that begins: its
// entries name the waypoints, and what another source told may not be what its bridge
// asks for, such as services without the keys that the bridge now names.
func (f *feed) begin(all ...*waypoint) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, w := range all {
			if err := w.wait(ctx); err != nil {
				return err
			}
		}
		return f.table.Current(ctx)
	}
}

// replicas returns where the replicas of the istiod at an address are noted.
func (f *feed) replicas(address string) *debug.Endpoints {
	if f.istiods[address] == nil {
		f.istiods[address] = &debug.Endpoints{}
	}
	return f.istiods[address]
}
