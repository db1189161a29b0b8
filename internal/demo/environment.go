package demo

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/fake/memory"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// The names of the demo's owner and bridge. No configuration would have this owner.
const (
	ownerID    = "xds-bridge demo"
	bridgeName = "demo"
)

// environment has the mesh, the bridge and the registry.
type environment struct {
	options Options
	istiod  *istiod
	table   *registry.Table
	source  *mesh.Source
	format  metadata.Encoder
	pathOf  func(registry.Group) (string, error) // the path of a group for consumers
	journal *journal
	loop    *bridge.Loop
	real    *realRegistry // a ZooKeeper; nil: none
	nacos   *nacos.Client // nil: none
}

func newEnvironment(ctx context.Context, o Options, m *meshFile) (s *environment, err error) {
	s = &environment{options: o, table: registry.NewTable()}
	defer func() {
		if err != nil && s.real != nil {
			s.real.client.Close()
		}
	}()
	mark := metadata.NewMark(ownerID, bridgeName)
	target, err := s.target(ctx, mark, m)
	if err != nil {
		return s, err
	}
	s.journal = &journal{Target: target, pathOf: s.pathOf}
	if s.istiod, err = newIstiod(ctx, m); err != nil {
		return s, err
	}
	if s.source, err = newSource(s.istiod, o); err != nil {
		return s, err
	}
	s.loop, err = bridge.New(s.journal, []bridge.Bridge{{
		Name: bridgeName, Table: s.table, Project: (&metadata.Projection{Formats: []metadata.Encoder{s.format}}).Entries, Guard: bridge.DefaultGuard(),
	}}, bridge.Options{
		Target: "demo", Owner: mark.Owner, Debounce: 50 * time.Millisecond, MaxDebounce: time.Second,
		Retry: registry.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}, Log: o.Log,
	})
	if err != nil {
		return s, fmt.Errorf("demo: %w", err)
	}
	return s, nil
}

func newSource(i *istiod, o Options) (*mesh.Source, error) {
	node, err := ads.Identity{Type: "router", IP: "127.0.0.1", Name: "xds-bridge", Namespace: "istio-system"}.Node()
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	mapping, err := debug.New(debug.Options{
		Replicas: debug.Static(i.debug.Addr().String()), HTTP: &debug.HTTPOptions{}, Interval: time.Second, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	source, err := mesh.New(mesh.Options{
		ADS:     ads.Options{Address: i.xds.Addr().String(), Node: node, Log: o.Log},
		Mapping: mapping,
		Allow:   []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, // the embedded mesh is on loopback
		Log:     o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return source, nil
}

// target returns the target in the registry.
func (s *environment) target(ctx context.Context, mark metadata.Mark, m *meshFile) (registry.Target, error) {
	if s.options.Nacos != "" {
		return s.nacosTarget(mark)
	}
	codec, err := dubbo.NewZooKeeper(dubbo.Options{Root: s.options.Root, Mark: mark})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	s.format, s.pathOf = codec, codec.Parent
	if s.options.ZooKeeper == "" {
		return memory.New(memory.Options{Owner: mark.Owner}), nil
	}
	o := zookeeper.Options{Servers: []string{s.options.ZooKeeper}, Log: s.options.Log}
	client, err := zookeeper.Dial(o) //nolint:contextcheck // a client outlives the call; close ends it
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	target, err := zookeeper.NewTarget(client, zookeeper.TargetOptions{
		Owner: ownerID, Layouts: []zookeeper.Layout{codec}, Unregistered: true, Log: s.options.Log,
	})
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("demo: %w", err)
	}
	s.real = &realRegistry{address: s.options.ZooKeeper, client: client, target: target, owner: mark.Owner}
	return target, s.real.remember(ctx, m.paths(s.options.Root))
}

// start starts all parts, and returns a function that waits for their end. A part that fails ends
// the others.
func (s *environment) start(ctx context.Context, end context.CancelCauseFunc) (wait func()) {
	var running sync.WaitGroup
	parts := map[string]func(context.Context) error{
		"mesh":   s.istiod.run,
		"source": func(ctx context.Context) error { return s.source.Run(ctx, s.table) },
		"loop":   s.loop.Run,
	}
	if s.nacos != nil {
		parts["nacos"] = s.nacos.Run
	}
	for name, run := range parts {
		running.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				end(fmt.Errorf("demo: %s: %w", name, err))
			}
		})
	}
	return running.Wait
}

// close releases the resources of the environment.
func (s *environment) close(ctx context.Context) error {
	if s.real == nil {
		return nil
	}
	defer s.real.client.Close()
	return s.real.restore(ctx)
}

// header describes the mesh and the registry.
func (s *environment) header() string {
	where := "in memory, root " + s.options.Root
	if s.real != nil {
		where = "ZooKeeper at " + s.real.address + ", root " + s.options.Root + "; it is left as it was"
	}
	if s.nacos != nil {
		where = "Nacos at " + s.options.Nacos + ", group " + s.options.Root + "; entries there end with the demo"
	}
	return fmt.Sprintf("mesh:     %d services; xDS on %s, debug API on http://%s/debug/adsz\nregistry: %s",
		len(s.istiod.mesh.Services), s.istiod.xds.Addr(), s.istiod.debug.Addr(), where)
}

// nacosTarget returns a target in a real Nacos. There is nothing to restore afterwards: Nacos removes
// instances with their connection, and empty services some time later.
func (s *environment) nacosTarget(mark metadata.Mark) (registry.Target, error) {
	codec, err := dubbo.NewNacos(dubbo.Options{Group: s.options.Root, Mark: mark})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	s.format = codec
	s.pathOf = func(g registry.Group) (string, error) { return g.Name, nil }
	if s.nacos, err = nacos.New(nacos.Options{Servers: []string{s.options.Nacos}, Log: s.options.Log}); err != nil {
		return nil, fmt.Errorf("demo: --nacos: %w", err)
	}
	target, err := nacos.NewTarget(s.nacos, nacos.TargetOptions{Owner: mark.Owner, Layouts: []nacos.Layout{providers(s.options.Root)}})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return target, nil
}

// providers is the layout of Dubbo's interface-level services in a group of a Nacos.
type providers string

// Scopes implements nacos.Layout.
func (p providers) Scopes() []registry.Group { return []registry.Group{{Group: string(p)}} }

// GroupOf implements nacos.Layout.
func (providers) GroupOf(namespace, group, service string) (registry.Group, bool) {
	g := registry.Group{Kind: dubbo.Kind, Namespace: namespace, Group: group, Name: service}
	return g, strings.HasPrefix(service, "providers:")
}
