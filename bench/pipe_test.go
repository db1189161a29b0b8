package bench_test

import (
	"context"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// pipe is the whole path from a fleet to a ZooKeeper, as wiring builds it.
type pipe struct {
	loop *bridge.Loop
	tap  *tap
	end  func()
}

// published is a mapping that is known from the start.
type published metadata.Mapping

// Run implements mesh.MappingReader.
func (p published) Run(ctx context.Context, changed func(debug.Snapshot)) error {
	changed(debug.Snapshot{Mapping: metadata.Mapping(p), Complete: true, At: time.Now()})
	<-ctx.Done()
	return nil
}

func (f *fleet) mapping() published {
	var claims iter.Seq[metadata.Claim] = func(yield func(metadata.Claim) bool) {
		for i := range f.services {
			key := naming.ServiceKey{Category: "providers", Interface: iface(i)}
			if !yield(metadata.Claim{Key: key, Address: naming.HostAddress{Host: host(i), Port: 20000}, Client: "bench"}) {
				return
			}
		}
	}
	return published(metadata.NewMapping(claims))
}

// tap records when changes of groups leave and when they are done.
type tap struct {
	registry.Target

	mu     sync.Mutex
	writes int
	passed chan passage // reported each write where it is not nil
}

type passage struct {
	group       registry.Group
	begun, done time.Time
}

// Capabilities implements registry.Target. The loop is measured without admission,
// records, watches and overlaps.
func (p *tap) Capabilities() registry.Capabilities {
	c := p.Target.Capabilities()
	return registry.Capabilities{Sessions: c.Sessions, Lost: c.Lost, VerifyAfter: c.VerifyAfter, SourcesComplete: c.SourcesComplete}
}

// Write implements registry.Target.
func (p *tap) Write(ctx context.Context, c registry.Change) error {
	begun := time.Now()
	err := p.Target.Write(ctx, c)
	p.mu.Lock()
	if err == nil {
		p.writes++
	}
	passed := p.passed
	p.mu.Unlock()
	if passed != nil {
		passed <- passage{c.Group, begun, time.Now()}
	}
	return err
}

func (p *tap) report(passed chan passage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed = passed
}

// written returns how many changes were written.
func (p *tap) written() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writes
}

func start(t *testing.T, f *fleet, server string) *pipe {
	t.Helper()
	codec, err := dubbo.NewZooKeeper(dubbo.Options{Root: root, Mark: mark()})
	must(t, err)
	client, err := zookeeper.Dial(zookeeper.Options{Servers: []string{server}})
	must(t, err)
	target, err := zookeeper.NewTarget(client, zookeeper.TargetOptions{Owner: "bench", Layouts: []zookeeper.Layout{codec}})
	must(t, err)
	return f.into(t, target, codec.Encode, client.Close)
}

func mark() metadata.Mark { return metadata.NewMark("bench", "bench") }

// into keeps the fleet in a target.
func (f *fleet) into(t *testing.T, target registry.Target, project bridge.Project, closed func()) *pipe {
	t.Helper()
	node, err := ads.Identity{Type: "router", IP: "127.0.0.1", Name: "bench", Namespace: "istio-system"}.Node()
	must(t, err)
	source, err := mesh.New(mesh.Options{ADS: ads.Options{Address: f.address, Node: node}, Mapping: f.mapping()})
	must(t, err)
	return run(t, source, target, project, closed)
}

// run keeps a source in a target.
func run(t *testing.T, source registry.Source, target registry.Target, project bridge.Project, closed func()) *pipe {
	t.Helper()
	table := registry.NewTable()
	p := &pipe{tap: &tap{Target: target}}
	var err error
	p.loop, err = bridge.New(p.tap, []bridge.Bridge{{
		Name: "bench", Table: table, Project: project, Guard: bridge.DefaultGuard(),
	}}, bridge.Options{Target: "bench", Owner: mark().Owner, Workers: workers, Debounce: 50 * time.Millisecond, MaxDebounce: time.Second})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { check(t, source.Run(ctx, table)) })
	running.Go(func() { check(t, p.loop.Run(ctx)) })
	p.end = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		closed()
	})
	t.Cleanup(p.end)
	return p
}

// written waits until so many changes of groups were written since the start.
func (p *pipe) written(t *testing.T, changes int) {
	t.Helper()
	const look = time.Millisecond
	for began := time.Now(); p.tap.written() < changes; time.Sleep(look) {
		if time.Since(began) > 5*time.Minute {
			t.Fatalf("%d of %d changes written", p.tap.written(), changes)
		}
	}
}

// await waits until the target holds what the mesh has.
func (p *pipe) await(t *testing.T, entries int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	status, err := p.loop.AwaitIdle(ctx)
	must(t, err)
	if status.Owned != entries {
		t.Fatalf("%d entries, want %d", status.Owned, entries)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
