package faults_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/integration/faults"
	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
)

// guardSettle is what the guard of the defaults waits before it believes that
// something is missing (guard.settle).
const guardSettle = time.Minute

// A lot is all that one source has for one bridge into each target: as many
// entries, of which the source shows nothing or half once it has restarted.
type lot struct {
	source  string
	shows   string // nothing or half
	entries int
}

// lots are those of a source, the sizes of the table in bridge/guard/testdata/tables.md
// without the largest.
func lots(source string) (all []lot) {
	for _, shows := range []string{"nothing", "half"} {
		for _, n := range []int{1, 2, 5, 10, 100} {
			all = append(all, lot{source, shows, n})
		}
	}
	return all
}

// name is that of its services without their numbers.
func (l lot) name() string { return fmt.Sprintf("%s-%s-%d", l.source, l.shows, l.entries) }

// whole returns its services with all their ports.
func (l lot) whole() map[string][]int { return l.part(func(int) bool { return true }) }

// rest returns what the source still shows once it has restarted: of two
// entries the second.
func (l lot) rest() map[string][]int {
	return l.part(func(n int) bool { return l.shows == "half" && n%2 == 1 })
}

func (l lot) part(shown func(n int) bool) map[string][]int {
	each := 1
	if l.entries >= 10 {
		each = 2
	}
	all := make(map[string][]int)
	for n := range l.entries {
		if shown(n) {
			iface := fmt.Sprintf("api.s%d-%s", n/each, l.name())
			all[iface] = append(all[iface], 18001+n%each)
		}
	}
	return all
}

// left is how many entries the source shows once it has restarted.
func (l lot) left() (n int) {
	for _, ports := range l.rest() {
		n += len(ports)
	}
	return n
}

// guarded is one bridge process with a bridge of the default guard for each lot
// and target.
type guarded struct {
	bridge *harness.Bridge
	routes []route
	sent   map[string]*nacossdk.Watch // of the target that is a Nacos, by interface
	znodes *harness.Znodes            // of the target that is a ZooKeeper
}

type route struct {
	lot
	target string
}

func (r route) name() string { return r.lot.name() + "-to-" + r.target }

// routes are those of a source into a target.
func routes(source, target string) (all []route) {
	for _, l := range lots(source) {
		all = append(all, route{l, target})
	}
	return all
}

// text is the bridge in the configuration.
func (r route) text() string {
	of := fmt.Sprintf(`select: { include: ["*-%s::"], allow: [127.0.0.0/8] }`, r.lot.name())
	if r.source == "mesh" {
		of = fmt.Sprintf(`select: { include: [%q], allow: [127.0.0.0/8] }, names: [{ host: %[1]q, interface: "api.*-%s" }]`,
			"*-"+r.lot.name()+".shop.svc.cluster.local", r.lot.name())
	}
	return fmt.Sprintf("  - { name: %s, from: %s, to: %s, formats: [dubbo-interface], %s }\n", r.name(), r.source, r.target, of)
}

// shown returns the entries of a route that the target shows, and what is known
// of each: in a ZooKeeper the transactions that touched it.
func (g *guarded) shown(t testing.TB, r route) []string {
	t.Helper()
	var all []string
	for iface := range r.whole() {
		if r.target == "nacos" {
			for _, in := range g.sent[iface].Instances() {
				all = append(all, fmt.Sprintf("%s %s:%d", iface, in.Ip, in.Port))
			}
			continue
		}
		for at, node := range g.znodes.Tree(t, faults.ProvidersPath(iface)) {
			if at != faults.ProvidersPath(iface) {
				all = append(all, fmt.Sprintf("%s %d %d", at, node.Created, node.Modified))
			}
		}
	}
	slices.Sort(all)
	return all
}

// has waits until a route has so many entries in its target.
func (g *guarded) has(t testing.TB, r route, entries int) {
	t.Helper()
	harness.Eventually(t, faults.HealTime, r.name()+" is in its target", func() error {
		return harness.Same(len(g.shown(t, r)), entries)
	})
}

// applied returns what each route has written and deleted so far, as the
// bridge's metrics show it.
func (g *guarded) applied(t testing.TB) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for line := range strings.Lines(g.bridge.Metrics(t)) {
		for _, r := range g.routes {
			if strings.HasPrefix(line, "xdsbridge_changes_applied_total{") && strings.Contains(line, fmt.Sprintf("bridge=%q", r.name())) {
				all[r.name()] = append(all[r.name()], line)
			}
		}
	}
	return all
}

// A heldBack is what the bridge says of a hold.
type heldBack struct {
	ID      string   `json:"id"`
	Bridge  string   `json:"bridge"`
	Target  string   `json:"target"`
	Reason  string   `json:"reason"`
	Release string   `json:"release"`
	Entries []string `json:"entries"`
}

// holds returns the holds by the name of their bridge: several where it found
// missing one part after the other.
func (g *guarded) holds(t testing.TB) (map[string][]heldBack, error) {
	t.Helper()
	var page struct {
		Items []heldBack `json:"items"`
	}
	code, out, errOut := g.bridge.Do(t, "holds", "-o", "json")
	if err := json.Unmarshal([]byte(out), &page); err != nil {
		return nil, fmt.Errorf("holds ended with %d: %s: %w", code, errOut, err)
	}
	all := make(map[string][]heldBack)
	for _, h := range page.Items {
		all[h.Bridge] = append(all[h.Bridge], h)
	}
	return all, nil
}

// TestGuardTable_RealServers is the first three rows of the table of sources in
// bridge/guard/testdata/tables.md, with the real servers and the guard of the defaults: a
// source restarts and shows nothing, or half. What stays is all of it, held;
// approval lets it go, and the source's return ends the rest without a write.
func TestGuardTable_RealServers(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	sources := []guardSource{newMeshSource(t), newZooKeeperSource(t), newNacosSource(t)}
	g := newGuarded(t, sources)

	before := make(map[string][]string)
	for _, r := range g.routes {
		g.has(t, r, r.entries)
		before[r.name()] = g.shown(t, r)
	}
	wrote := g.applied(t)
	untouched := func(t *testing.T, but func(route) bool) {
		t.Helper()
		writes := g.applied(t)
		for _, r := range g.routes {
			if but(r) {
				continue
			}
			if err := harness.Same(g.shown(t, r), before[r.name()]); err != nil {
				t.Errorf("%s: what stays in the target: %v", r.name(), err)
			}
			if err := harness.Same(writes[r.name()], wrote[r.name()]); err != nil || len(wrote[r.name()]) == 0 {
				t.Errorf("%s: entries written: %v", r.name(), err)
			}
		}
	}
	for _, s := range sources {
		s.restarts(t)
	}
	<-time.NewTimer(guardSettle).C
	var held map[string][]heldBack
	ok := t.Run("all of it stays, held", func(t *testing.T) {
		held = g.allHeld(t)
		untouched(t, func(route) bool { return false })
	}) && t.Run("status and why say so, and the reason", func(t *testing.T) { g.saysHeld(t, held) })
	if !ok {
		t.FailNow()
	}
	approved := func(r route) bool {
		return r.entries == 5 && r.shows == "half" || r.entries == 2 && r.shows == "nothing"
	}
	t.Run("approval lets it go, and nothing else", func(t *testing.T) {
		for _, r := range g.routes {
			if !approved(r) {
				continue
			}
			for _, h := range held[r.name()] {
				if code, out, errOut := g.bridge.Do(t, "approve", h.ID); code != 0 {
					t.Errorf("approve of %s ended with %d: %s%s", r.name(), code, out, errOut)
				}
			}
		}
		for _, r := range g.routes {
			if approved(r) {
				g.has(t, r, r.left())
			}
		}
	})
	t.Run("the source's return ends what is held, without a write", func(t *testing.T) {
		for _, s := range sources {
			s.returns(t)
		}
		harness.Eventually(t, 2*faults.HealTime, "no hold is left", func() error {
			return harness.Same(faults.Metric(t, g.bridge, `xdsbridge_guard_holds{listen="",registry="zk"}`)+faults.Metric(t, g.bridge, `xdsbridge_guard_holds{listen="",registry="nacos"}`), 0.0)
		})
		for _, r := range g.routes {
			if approved(r) {
				g.has(t, r, r.entries)
			}
		}
		untouched(t, approved)
		for iface, w := range g.sent {
			g.neverFewer(t, iface, w, approved)
		}
	})
}

// allHeld waits until each route holds back what its source lost, and returns
// the holds.
func (g *guarded) allHeld(t *testing.T) (held map[string][]heldBack) {
	t.Helper()
	harness.Eventually(t, 2*guardSettle, "what each bridge lost is held", func() (err error) {
		<-time.NewTimer(time.Second).C // each look is a process
		if held, err = g.holds(t); err != nil {
			return err
		}
		for _, r := range g.routes {
			entries := 0
			for _, h := range held[r.name()] {
				entries += len(h.Entries)
				if h.Target != r.target || h.Reason == "" || h.Release == "" {
					t.Errorf("the hold does not say enough: %+v", h)
				}
			}
			if err := harness.Same(entries, r.entries-r.left()); err != nil {
				return fmt.Errorf("%s: entries held back: %w; holds of %v", r.name(), err, slices.Sorted(maps.Keys(held)))
			}
		}
		return harness.Same(len(held), len(g.routes))
	})
	return held
}

// saysHeld looks at what an operator reads.
func (g *guarded) saysHeld(t *testing.T, held map[string][]heldBack) {
	t.Helper()
	code, out, errOut := g.bridge.Do(t, "status")
	if code != 5 || !strings.Contains(out, "HELD") {
		t.Errorf("status ended with %d, want 5:\n%s%s", code, out, errOut)
	}
	for _, r := range g.routes {
		if r.entries != 5 {
			continue
		}
		for _, query := range []string{"api.s0-" + r.lot.name(), faults.Key("api.s0-" + r.lot.name())} {
			_, out, errOut := g.bridge.Do(t, "why", query)
			for _, want := range []string{"target " + r.target + ", bridge " + r.name(), "reason    held", "services would have no endpoint left", "hold " + held[r.name()][0].ID + " in " + r.target, "ends ", "approv"} {
				if !strings.Contains(out, want) {
					t.Errorf("why %s lacks %q:\n%s%s", query, want, out, errOut)
				}
			}
		}
	}
}

// neverFewer fails the test where a subscriber of Nacos was notified of a list that
// lacks entries of a lot that was not approved.
func (g *guarded) neverFewer(t *testing.T, iface string, w *nacossdk.Watch, approved func(route) bool) {
	t.Helper()
	for _, r := range g.routes {
		want := len(r.whole()[iface])
		if r.target != "nacos" || want == 0 || approved(r) {
			continue
		}
		lists, whole := w.Lists(), false
		for _, list := range lists {
			whole = whole || len(list.Addresses) == want
			if whole && len(list.Addresses) < want {
				t.Errorf("a subscriber of %s saw %v", iface, list.Addresses)
			}
		}
	}
}

// newGuarded starts the targets and the bridge.
func newGuarded(t *testing.T, sources []guardSource) *guarded {
	t.Helper()
	nacos, zookeeper := harness.SharedNacos(t, 3), harness.StartZooKeeper(t)
	g := &guarded{sent: make(map[string]*nacossdk.Watch), znodes: harness.Connect(t, zookeeper.Address)}
	var registries, bridges strings.Builder
	for _, s := range sources {
		registries.WriteString(s.registry())
		g.routes = append(g.routes, s.routes()...)
	}
	sdk := nacossdk.ConnectTo(t, nacos)
	for _, r := range g.routes {
		bridges.WriteString(r.text())
		for iface := range r.whole() {
			if r.target == "nacos" {
				g.sent[iface] = sdk.Subscribe(t, faults.Key(iface))
			}
		}
	}
	g.bridge = harness.ConfiguredBridge(t, fmt.Sprintf("owner: faults\nregistries:\n%s  zk: { zookeeper: { servers: [%q] } }\n  nacos: { nacos: { %s } }\nbridges:\n%s",
		&registries, zookeeper.Address, nacos.Settings(), &bridges))
	g.bridge.Start(t)
	g.bridge.AwaitReady(t)
	return g
}

// A guardSource is a real server that has the lots of its name.
type guardSource interface {
	registry() string // in the configuration
	routes() []route
	restarts(t *testing.T) // and shows nothing of some lots, half of others
	returns(t *testing.T)  // everything
}

type meshSource struct {
	mesh   *harness.Mesh
	istiod *harness.Istiod
}

func newMeshSource(t *testing.T) *meshSource {
	t.Helper()
	s := &meshSource{mesh: harness.NewMesh(t)}
	s.apply(t, lot.whole)
	s.istiod = harness.StartIstiod(t, s.mesh)
	return s
}

func (*meshSource) routes() []route { return append(routes("mesh", "zk"), routes("mesh", "nacos")...) }

func (s *meshSource) registry() string {
	return fmt.Sprintf("  mesh: { istiod: { address: %q, mapping: { from: none } } }\n", s.istiod.GRPC)
}

func (s *meshSource) apply(t *testing.T, part func(lot) map[string][]int) {
	t.Helper()
	var services []harness.Service
	for _, l := range lots("mesh") {
		for iface, ports := range part(l) {
			host := strings.TrimPrefix(iface, "api.") + ".shop.svc.cluster.local"
			services = append(services, harness.Service{Host: host, Port: 20000, Endpoints: harness.Local(ports...)})
		}
	}
	s.mesh.ApplyTogether(t, "all", services...)
}

func (s *meshSource) restarts(t *testing.T) {
	t.Helper()
	s.istiod.Kill()
	s.apply(t, lot.rest)
	s.istiod.Start(t)
}

func (s *meshSource) returns(t *testing.T) {
	t.Helper()
	s.istiod.Kill()
	s.apply(t, lot.whole)
	s.istiod.Start(t)
}

// zookeeperSource is a ZooKeeper that is put back to an earlier state, in which
// there was its root, and half of some lots.
type zookeeperSource struct {
	server  *harness.ZooKeeper
	earlier string
}

func newZooKeeperSource(t *testing.T) *zookeeperSource {
	t.Helper()
	s := &zookeeperSource{server: harness.StartZooKeeper(t)}
	znodes := harness.Connect(t, s.server.Address)
	znodes.Create(t, "/dubbo", "")
	register := faults.InZooKeeper(znodes)
	for _, l := range lots("zksource") {
		for iface, ports := range l.rest() {
			register(t, iface, nil, ports)
		}
	}
	s.server.Kill()
	s.earlier = s.server.Stored(t)
	s.server.Start(t)
	s.server.AwaitServing(t)
	s.returns(t)
	return s
}

func (*zookeeperSource) routes() []route { return routes("zksource", "nacos") }

func (s *zookeeperSource) registry() string {
	return fmt.Sprintf("  zksource: { zookeeper: { servers: [%q], id: zksource, sessionTimeout: %s } }\n", s.server.Address, session)
}

func (s *zookeeperSource) restarts(t *testing.T) {
	t.Helper()
	s.server.Kill()
	s.server.Restore(t, s.earlier)
	s.server.Start(t)
	s.server.AwaitServing(t)
}

func (s *zookeeperSource) returns(t *testing.T) {
	t.Helper()
	register := faults.InZooKeeper(harness.Connect(t, s.server.Address))
	for _, l := range lots("zksource") {
		before := l.rest()
		for iface, ports := range l.whole() {
			register(t, iface, before[iface], ports)
		}
	}
}

// nacosSource is a Nacos that restarts, and whose providers do not all come
// back: some do not reach it.
type nacosSource struct {
	server *harness.Nacos
	reach  *harness.NacosProxy // of the providers that do not come back
}

func newNacosSource(t *testing.T) *nacosSource {
	t.Helper()
	s := &nacosSource{server: harness.StartNacos(t, harness.NacosOptions{Version: 2, Heap: "256m", PushDelay: 50 * time.Millisecond})}
	s.reach = harness.StartNacosProxy(t, s.server)
	stay, leave := nacossdk.Connect(t, s.server.URL), nacossdk.Connect(t, s.reach.URL)
	for _, l := range lots("nacossource") {
		after := l.rest()
		for iface, ports := range l.whole() {
			var staying, leaving []model.Instance
			for _, port := range ports {
				in := provided(iface, "127.0.0.1", uint64(port))
				if slices.Contains(after[iface], port) {
					staying = append(staying, in)
				} else {
					leaving = append(leaving, in)
				}
			}
			if len(staying) > 0 {
				stay.Register(t, faults.Key(iface), staying...)
			}
			if len(leaving) > 0 {
				leave.Register(t, faults.Key(iface), leaving...)
			}
		}
	}
	return s
}

func (*nacosSource) routes() []route { return routes("nacossource", "zk") }

func (s *nacosSource) registry() string {
	return fmt.Sprintf("  nacossource: { nacos: { servers: [%q], id: nacossource } }\n", s.server.URL)
}

func (s *nacosSource) restarts(t *testing.T) {
	t.Helper()
	s.reach.Both((*harness.Proxy).Cut)
	s.server.Kill()
	s.server.Start(t)
}

func (s *nacosSource) returns(t *testing.T) {
	t.Helper()
	s.reach.Both((*harness.Proxy).Heal)
}
