package faults

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/naming"
)

// Flapping is an address that comes and goes faster than anybody can know when
// it is there, so that no history knows it.
const Flapping = "127.0.0.1:18999"

// Imports are two interfaces whose providers are in a registry, and which a
// real istiod gets from the bridge.
type Imports struct {
	*Oracle
	Istiod *harness.Istiod
	Listen string // where the bridge has to serve istiod

	// Put makes the ports of 127.0.0.1 all the providers of an interface.
	Put func(t testing.TB, iface string, before, after []int)

	next int
	now  []int
}

// NewImports registers three providers of each interface.
func NewImports(t testing.TB, put func(t testing.TB, iface string, before, after []int)) *Imports {
	t.Helper()
	i := &Imports{Listen: harness.Address(t), Put: put, next: 18200, now: []int{18101, 18102, 18103}}
	put(t, SteadyInterface, nil, []int{18001, 18002, 18003})
	put(t, MovingInterface, nil, i.now)
	return i
}

// Serve starts an istiod that reads the bridge, which has to listen already,
// and makes an oracle that of the imports.
func (i *Imports) Serve(t testing.TB, o *Oracle, registry string) {
	t.Helper()
	mesh := harness.NewMesh(t)
	mesh.From(i.Listen)
	harness.Eventually(t, HealTime, "the bridge listens for istiod", func() error { return harness.Listens(t, i.Listen) })
	o.Has(SteadyInterface, Addresses(18001, 18002, 18003)...)
	o.Has(MovingInterface, Addresses(i.now...)...)
	i.Istiod, i.Oracle = harness.StartIstiod(t, mesh), o
	for _, iface := range []string{SteadyInterface, MovingInterface} {
		watch := harness.WatchEndpoints(t, i.Istiod.GRPC, ImportedCluster(registry, iface))
		o.Subscribe(iface, "a client of istiod", Without{watch, Flapping})
	}
}

// Change has one provider of the moving interface go and another come.
func (i *Imports) Change(t *testing.T) {
	t.Helper()
	before := i.now
	i.now = append(slices.Clone(before[1:]), i.next)
	i.next++
	i.Has(MovingInterface, Addresses(i.now...)...)
	i.Put(t, MovingInterface, before, i.now)
}

// Again registers everything once more where it is gone.
func (i *Imports) Again(t testing.TB) {
	t.Helper()
	i.Put(t, SteadyInterface, nil, []int{18001, 18002, 18003})
	i.Put(t, MovingInterface, nil, i.now)
}

// Try is Oracle.Try with the change of the imports where the fault has none.
func (i *Imports) Try(t *testing.T, f Fault) {
	t.Helper()
	if f.Change == nil {
		f.Change = i.Change
	}
	i.Oracle.Try(t, f)
}

// ImportedCluster is the cluster in which istiod serves an interface of a
// registry.
func ImportedCluster(registry, iface string) string {
	host := naming.MeshHosts{Registry: registry, Suffix: "bridge.internal"}.Of(naming.MeshName{
		Key: naming.ServiceKey{Category: naming.Providers, Interface: iface}, Protocol: "tri",
	})
	return "outbound|50051||" + host
}

// InZooKeeper puts providers into a ZooKeeper as Java's would.
func InZooKeeper(znodes *harness.Znodes) func(t testing.TB, iface string, before, after []int) {
	return func(t testing.TB, iface string, before, after []int) {
		t.Helper()
		for _, p := range after {
			if !slices.Contains(before, p) {
				znodes.Create(t, Registered(iface, p), "")
			}
		}
		for _, p := range before {
			if !slices.Contains(after, p) {
				znodes.Delete(t, Registered(iface, p))
			}
		}
	}
}

// Below returns a look at everything below paths of a ZooKeeper.
func Below(znodes *harness.Znodes, paths ...string) func(testing.TB) string {
	return func(t testing.TB) string {
		t.Helper()
		all := make(map[string]harness.Znode)
		for _, p := range paths {
			maps.Copy(all, znodes.Tree(t, p))
		}
		return fmt.Sprint(all)
	}
}
