package faults

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// The services of every world. The steady one never changes; the moving one
// changes during every fault.
const (
	steady = "steady.shop.svc.cluster.local"
	moving = "moving.shop.svc.cluster.local"
	port   = 20000
)

// The services' interfaces, and their names as the bridge has them.
const (
	SteadyInterface = "api.Steady"
	MovingInterface = "api.Moving"
	SteadyService   = steady + ":20000"
	MovingService   = moving + ":20000"
)

// A Mesh is a mesh of two services behind the real istiod, whose connections
// with the bridge pass proxies.
type Mesh struct {
	*Oracle
	Services *harness.Mesh
	Istiod   *harness.Istiod
	Keys     *harness.Provider // the application that publishes the keys
	ToIstiod *harness.Proxy
	ToDebug  *harness.Proxy
	Grace    time.Duration // how long keys stay whose connection went

	owner  testing.TB              // which connections end with, whichever subtest makes them
	pushed *harness.EndpointsWatch // of the moving service
	next   int                     // the port of the next endpoint
	now    []int
}

// StartMesh starts it with three endpoints in each service.
func StartMesh(t testing.TB) *Mesh {
	t.Helper()
	m := &Mesh{owner: t, Services: harness.NewMesh(t), Grace: 5 * time.Second, next: 18200, now: []int{18101, 18102, 18103}}
	m.apply(t, steady, 18001, 18002, 18003)
	m.apply(t, moving, m.now...)
	m.Istiod = harness.StartIstiod(t, m.Services)
	m.ToIstiod = harness.StartProxy(t, m.Istiod.GRPC)
	m.ToDebug = harness.StartProxy(t, m.Istiod.HTTP)
	m.Publish(t)
	m.pushed = harness.WatchEndpoints(t, m.Istiod.GRPC, "outbound|20000||"+moving)
	return m
}

// JudgedBy makes an oracle the mesh's, and informs it of what the mesh has.
func (m *Mesh) JudgedBy(o *Oracle) {
	m.Oracle = o
	o.Has(SteadyService, Addresses(18001, 18002, 18003)...)
	o.Has(MovingService, Addresses(m.now...)...)
}

// Publish has an application publish the keys of both services, for the first
// time or once more.
func (m *Mesh) Publish(t testing.TB) {
	t.Helper()
	keys := map[string]string{Key(SteadyInterface): SteadyService, Key(MovingInterface): MovingService}
	if m.Keys == nil {
		m.Keys = harness.Publish(t, m.Istiod.GRPC, "shop", keys)
		return
	}
	m.Keys.Republish(t, keys)
}

// Change has one endpoint of the moving service go, another come, and the
// rest stay.
func (m *Mesh) Change(t *testing.T) {
	t.Helper()
	m.now = slices.Clone(m.now[1:])
	m.Grow(t)
}

// Grow has one endpoint of the moving service come.
func (m *Mesh) Grow(t *testing.T) {
	t.Helper()
	m.now = append(slices.Clone(m.now), m.next)
	m.next++
	m.Has(MovingService, Addresses(m.now...)...)
	m.apply(t, moving, m.now...)
	if m.Istiod.Running() {
		m.pushed.AwaitPush(t, HealTime, Addresses(m.now...)...)
	}
}

// Restart starts a killed istiod once more and waits until it serves.
func (m *Mesh) Restart(t *testing.T) {
	t.Helper()
	m.Istiod.Start(t)
	m.pushed = harness.WatchEndpoints(m.owner, m.Istiod.GRPC, "outbound|20000||"+moving)
}

// Hide removes services from the mesh without informing the oracle: they are
// there nevertheless, and istiod does not know them. Show puts both back.
func (m *Mesh) Hide(t testing.TB, services ...string) {
	t.Helper()
	for _, service := range services {
		m.Services.Remove(t, strings.TrimSuffix(service, ":20000"))
	}
}

// Show ends Hide.
func (m *Mesh) Show(t testing.TB) {
	t.Helper()
	m.apply(t, steady, 18001, 18002, 18003)
	m.apply(t, moving, m.now...)
}

// NextPort returns the port of the endpoint that comes with the next change.
func (m *Mesh) NextPort() int { return m.next }

// NodeOf returns the path of the entry of the moving service's i-th endpoint.
func (m *Mesh) NodeOf(t testing.TB, znodes *harness.Znodes, i int) string {
	t.Helper()
	parent := ProvidersPath(MovingInterface)
	for _, name := range znodes.Children(t, parent) {
		if strings.Contains(name, fmt.Sprintf("%%3A%d%%2F", m.now[i])) {
			return parent + "/" + name
		}
	}
	t.Fatalf("no entry of port %d", m.now[i])
	return ""
}

func (m *Mesh) apply(t testing.TB, host string, ports ...int) {
	t.Helper()
	m.Services.Apply(t, harness.Service{Host: host, Port: port, Endpoints: harness.Local(ports...)})
}

// Registry is the registry of the mesh in a configuration.
func (m *Mesh) Registry() string {
	return fmt.Sprintf("mesh: { istiod: { address: %q, mapping: { from: debug-http, addresses: [%q], interval: 200ms, grace: 1s, connectionGrace: %s } } }",
		m.ToIstiod.Address, m.ToDebug.Address, m.Grace)
}

// Try is Oracle.Try with the change of the mesh where the fault has none.
func (m *Mesh) Try(t *testing.T, f Fault) {
	t.Helper()
	if f.Change == nil {
		f.Change = m.Change
	}
	m.Oracle.Try(t, f)
}

// Key is the service key of an interface.
func Key(iface string) string { return "providers:" + iface + "::" }

// ProvidersPath is where the providers of an interface are in ZooKeeper.
func ProvidersPath(iface string) string { return "/dubbo/" + iface + "/providers" }

// Registered is how a Java provider of an interface is in ZooKeeper.
func Registered(iface string, port int) string {
	return ProvidersPath(iface) + "/" + url.QueryEscape(fmt.Sprintf("tri://127.0.0.1:%d/%s?application=app&interface=%s&side=provider", port, iface, iface))
}

// Addresses are ports of 127.0.0.1.
func Addresses(ports ...int) []string {
	var all []string
	for _, p := range ports {
		all = append(all, fmt.Sprintf("127.0.0.1:%d", p))
	}
	return all
}

// PlantOthers creates what is not ours in ZooKeeper: in a parent znode of ours a
// provider of nobody and one with the mark of another bridge, and a parent znode of
// its own. It returns a look at all of it.
func PlantOthers(t testing.TB, znodes *harness.Znodes) func(testing.TB) string {
	t.Helper()
	znodes.Create(t, "/dubbo/api.Other/consumers/somebody", "x")
	znodes.Create(t, "/dubbo/api.Other/configurators", "")
	znodes.Create(t, Registered("api.Other", 19001), "data")
	znodes.Create(t, ProvidersPath(SteadyInterface)+"/"+url.QueryEscape("tri://10.9.9.1:20000/api.Steady?interface=api.Steady&side=provider"), "data")
	znodes.Create(t, ProvidersPath(SteadyInterface)+"/"+url.QueryEscape("tri://10.9.9.2:20000/api.Steady?interface=api.Steady&side=provider&xdsb=abcdef012"), "")
	return func(t testing.TB) string {
		t.Helper()
		tree := znodes.Tree(t, "/dubbo")
		var lines []string
		for _, at := range slices.Sorted(maps.Keys(tree)) {
			theirs := strings.Contains(at, "10.9.9.") || strings.HasPrefix(at, "/dubbo/api.Other/") || strings.HasPrefix(at, "/dubbo/api.Theirs/")
			if theirs {
				lines = append(lines, fmt.Sprintf("%s %+v", at, tree[at]))
			}
		}
		return strings.Join(lines, "\n")
	}
}

// Without is what a subscriber sees of a service without addresses that begin
// so.
type Without struct {
	harness.Subscriber

	Prefix string
}

// WithoutOthers is what a subscriber sees of a service without what
// PlantOthers put there.
func WithoutOthers(s harness.Subscriber) Without { return Without{s, "10.9.9."} }

// Since is Subscriber.Since.
func (w Without) Since(at time.Time) []harness.Seen {
	all := w.Subscriber.Since(at)
	for i, list := range all {
		all[i].Addresses = w.without(list.Addresses)
	}
	return all
}

// Last is Subscriber.Last.
func (w Without) Last() []string { return w.without(w.Subscriber.Last()) }

func (w Without) without(addresses []string) []string {
	return slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return strings.HasPrefix(a, w.Prefix) })
}
