//go:build soak

package faults_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/integration/faults"
	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
	"github.com/xds-bridge/xds-bridge/integration/history"
	"github.com/xds-bridge/xds-bridge/naming"
)

// longRun is a mesh, a ZooKeeper and a Nacos, each with services of its own in
// every format that it has, and two replicas that keep them in sync.
type longRun struct {
	*history.Recorder

	services  *harness.Mesh
	istiod    *harness.Istiod
	zookeeper *harness.ZooKeeper
	znodes    *harness.Znodes
	sdk       *nacossdk.Client
	app       *nacossdk.Client // the applications of Nacos
	replicas  []*harness.Bridge
	listen    [][]string       // of each replica, by import
	imports   []*harness.Proxy // before them, as a Service of Kubernetes is
	sources   []*source
	samples   map[string][]float64
	sampled   time.Time
}

// A source is a service that one side provides: two endpoints that stay and
// four of which the oldest goes whenever a new one comes.
type source struct {
	name   string
	groups []string // of the histories that its copies elsewhere are in
	ports  []int
	base   int
	next   int
	away   bool // nobody provides it for the moment, by mistake
	put    func(t *testing.T, before, after []int)
}

const (
	sourcePorts  = 1500 // so that a port does not come back before everybody has forgotten it
	longServices = 3    // of the mesh
)

// The formats of either registry, by patterns that keep them apart.
const (
	formatsOfZooKeeper = `dubbo-interface, { format: dubbo-application, root: /apps }, { format: spring-cloud, service: "sc-*", protocol: http }, { format: kratos, service: "kr-*" },
      { format: hertz, service: "hz-*", protocol: http }, { format: kitex, service: "kx-*" }, { format: plain, service: "pl-*" }`
	formatsOfNacos = `dubbo-interface, { format: dubbo-application, group: APPS }, { format: spring-cloud, service: "sc-*", protocol: http }, { format: kratos, service: "kr-*" },
      { format: hertz, service: "hz-*", protocol: http }, { format: kitex, service: "kx-*" }, { format: plain, service: "pl-*" }, { format: gozero, service: "gz-*" }`
)

// TestLongRun has everything on for as long as XDS_BRIDGE_SOAK says: both
// directions, all formats, two replicas, steady churn, and now and then a
// replica that is killed, a format that is denied, and a root that is deleted
// and comes back. Every history is judged, and nothing may grow.
func TestLongRun(t *testing.T) {
	text := os.Getenv("XDS_BRIDGE_SOAK")
	if text == "" {
		t.Skip("XDS_BRIDGE_SOAK says for how long: make soak sets it")
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("XDS_BRIDGE_SOAK: %v", err)
	}
	r := startLongRun(t)
	r.agree(t)
	began, random := time.Now(), rand.New(rand.NewPCG(7, 60))
	events := []func(*testing.T, func(time.Duration)){r.killed, r.denied, r.rootAway}
	for n := 0; n < len(events) || time.Since(began) < lasts; n++ {
		churn := func(d time.Duration) { r.churn(t, random, d, lasts) }
		churn(min(20*time.Second, lasts/10))
		events[n%len(events)](t, churn)
		r.agree(t)
		if t.Failed() {
			t.Fatalf("in round %d, after %s", n, time.Since(began))
		}
		t.Logf("round %d, %s: %d services agree", n, time.Since(began).Round(time.Second), len(r.Truth()))
	}
	for name, values := range r.samples {
		if err := flat(values); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// killed kills a replica, and starts it again some time later.
func (r *longRun) killed(t *testing.T, churn func(time.Duration)) {
	t.Log("a replica is killed")
	r.replicas[1].Kill()
	for i, p := range r.imports {
		p.Lead(r.listen[0][i])
	}
	churn(8 * time.Second)
	r.replicas[1].Start(t)
	r.replicas[1].AwaitReady(t)
}

// denied removes the right to write one format, and grants it again.
func (r *longRun) denied(t *testing.T, churn func(time.Duration)) {
	t.Log("a format is denied")
	for n := range longServices {
		r.znodes.Deny(t, fmt.Sprintf("/plain/pl-web-%d", n), zk.PermCreate|zk.PermDelete)
	}
	churn(10 * time.Second)
	for n := range longServices {
		r.znodes.Allow(t, fmt.Sprintf("/plain/pl-web-%d", n))
	}
}

// rootAway has somebody delete a root, and its providers register again later.
func (r *longRun) rootAway(t *testing.T, churn func(time.Duration)) {
	t.Log("a root is deleted")
	i := slices.IndexFunc(r.sources, func(s *source) bool { return s.name == "out-zf" })
	s := r.sources[i]
	s.away = true
	r.znodes.Prune(t, "/outside")
	churn(10 * time.Second)
	s.put(t, nil, s.ports)
	s.away = false
}

// churn changes one service after the other for a while.
func (r *longRun) churn(t *testing.T, random *rand.Rand, during, lasts time.Duration) {
	t.Helper()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for began := time.Now(); time.Since(began) < during; <-ticker.C {
		if s := r.sources[random.IntN(len(r.sources))]; !s.away {
			r.change(t, s)
		}
		if time.Since(r.sampled) > min(15*time.Second, lasts/40) {
			r.sample(t)
		}
	}
}

func (r *longRun) change(t *testing.T, s *source) {
	t.Helper()
	after := slices.Concat(s.ports[:2], s.ports[3:], []int{s.base + s.next%sourcePorts})
	s.next++
	for _, group := range s.groups {
		r.Has(group, faults.Addresses(after...)...)
	}
	s.put(t, s.ports, after)
	s.ports = after
}

// agree waits until every subscriber sees what there is, and has what happened
// until then judged.
func (r *longRun) agree(t *testing.T) {
	t.Helper()
	defer r.explain(t)
	defer r.Judge(t)
	harness.Eventually(t, 2*time.Minute, "everything is what its source has", func() error {
		var all []error
		for group := range r.Truth() {
			if err := r.Shown(group); err != nil {
				all = append(all, fmt.Errorf("%s: %w", group, err))
			}
		}
		return errors.Join(all...)
	})
}

// explain prints what the replicas say, of a test that failed.
func (r *longRun) explain(t *testing.T) {
	t.Helper()
	if !t.Failed() {
		return
	}
	for _, b := range r.replicas {
		says, err := faults.Says(t, b)
		says = slices.DeleteFunc(says, func(s faults.Said) bool { return s.Reason == "synced" })
		t.Logf("not synced: %+v, %v", says, err)
	}
}

// sample records what the replicas use, and how much ZooKeeper watches.
func (r *longRun) sample(t *testing.T) {
	t.Helper()
	r.sampled = time.Now()
	var line strings.Builder
	for i, b := range r.replicas {
		if !b.Running() || harness.Listens(t, b.Telemetry) != nil {
			continue
		}
		fmt.Fprintf(&line, "replica %d: ", i)
		for _, metric := range []string{"process_resident_memory_bytes", "go_memstats_heap_inuse_bytes", "go_goroutines", "process_open_fds"} {
			value := faults.Metric(t, b, metric)
			fmt.Fprintf(&line, "%s %.0f  ", metric, value)
			if i == 0 { // which is never killed
				r.samples[metric] = append(r.samples[metric], value)
			}
		}
	}
	watches := float64(r.zookeeper.Watches(t))
	if r.replicas[1].Running() { // it has half of them
		r.samples["watches"] = append(r.samples["watches"], watches)
	}
	t.Logf("%swatches %.0f", line.String(), watches)
}

// flat returns an error where values rise: where a line through the second
// half of them ends more than a tenth, and a few, above where it begins.
func flat(values []float64) error {
	half := values[len(values)/2:]
	n := float64(len(half))
	var sx, sy, sxx, sxy float64
	for i, y := range half {
		x := float64(i)
		sx, sy, sxx, sxy = sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if n < 3 {
		return fmt.Errorf("%d samples are too few", len(values))
	}
	rise := (n*sxy - sx*sy) / (n*sxx - sx*sx) * (n - 1)
	if mean := sy / n; rise > mean/10+10 {
		return fmt.Errorf("the second half of %d samples rises by %.0f, and is %.0f in the mean: %.0f", len(values), rise, mean, half)
	}
	return nil
}

func startLongRun(t *testing.T) *longRun {
	t.Helper()
	r := &longRun{Recorder: history.New(), services: harness.NewMesh(t), samples: make(map[string][]float64)}
	r.zookeeper = harness.StartZooKeeper(t)
	server := harness.StartNacos(t, harness.NacosOptions{Version: 3, PushDelay: 50 * time.Millisecond})
	r.znodes = harness.Connect(t, r.zookeeper.Address)
	r.sdk, r.app = nacossdk.Connect(t, server.URL), nacossdk.Connect(t, server.URL)
	r.fromMesh(t)
	r.fromZooKeeper(t)
	r.fromNacos(t)
	for range 2 { // from ZooKeeper and from Nacos
		p := harness.StartProxy(t, "")
		r.imports = append(r.imports, p)
		r.services.From(p.Address)
	}
	xds, debug := harness.Address(t), harness.Address(t)
	for range 2 {
		r.listen = append(r.listen, []string{harness.Address(t), harness.Address(t)})
		r.replicas = append(r.replicas, harness.ConfiguredBridge(t, longConfig(xds, debug, r.zookeeper.Address, server.URL, r.listen[len(r.listen)-1])))
	}
	r.watchRegistries(t)
	for _, b := range r.replicas {
		b.Start(t)
	}
	for i, p := range r.imports {
		harness.Eventually(t, faults.HealTime, "the bridge listens for istiod", func() error { return harness.Listens(t, r.listen[1][i]) })
		p.Lead(r.listen[1][i])
	}
	r.istiod = harness.StartIstiodAt(t, r.services, xds, debug)
	for _, b := range r.replicas {
		b.AwaitReady(t)
	}
	r.watchMesh(t)
	return r
}

func longConfig(xds, debug, zookeeper, nacos string, listen []string) string {
	const guard = `select: { allow: [127.0.0.0/8] }, guard: { settle: 5s, lastEndpoint: 1s }`
	const names = `names: [{ host: "web-*.shop.svc.cluster.local", service: "web-*", interface: "api.Web*" }]`
	return fmt.Sprintf(`owner: soak
replicas: { ttl: 5s, lease: { zookeeper: zk } }
registries:
  mesh: { istiod: { address: %q, mapping: { from: debug-http, addresses: [%q], interval: 1s } } }
  zk: { zookeeper: { servers: [%q], sessionTimeout: 10s }, timing: { refresh: 20s, retryMax: 2s } }
  nacos: { nacos: { servers: [%q], listInterval: 1s }, timing: { refresh: 20s, retryMax: 2s } }
bridges:
  - { name: mesh-to-zk, from: mesh, to: zk, formats: [%s], %[6]s, %[7]s }
  - { name: mesh-to-nacos, from: mesh, to: nacos, formats: [%[8]s], %[6]s, %[7]s }
  - { name: zk-to-mesh, from: zk, to: mesh, listen: %[9]q, formats: [%[5]s, { format: plain, root: /outside, service: "out-*" }], %[7]s }
  - { name: nacos-to-mesh, from: nacos, to: mesh, listen: %[10]q, formats: [%[8]s], %[7]s }
`, xds, debug, zookeeper, nacos, formatsOfZooKeeper, names, guard, formatsOfNacos, listen[0], listen[1])
}

// add adds a source with its first endpoints. They are in place before any
// bridge reads them.
func (r *longRun) add(t *testing.T, name string, put func(t *testing.T, before, after []int)) *source {
	t.Helper()
	base := 20000 + sourcePorts*len(r.sources)
	s := &source{name: name, base: base, next: 6, put: put}
	for i := range 6 {
		s.ports = append(s.ports, base+i)
	}
	put(t, nil, s.ports)
	r.sources = append(r.sources, s)
	return s
}

func (r *longRun) fromMesh(t *testing.T) {
	t.Helper()
	for n := range longServices {
		host := fmt.Sprintf("web-%d.shop.svc.cluster.local", n)
		r.add(t, fmt.Sprint("web-", n), func(t *testing.T, _, after []int) {
			r.services.Apply(t, harness.Service{Host: host, Port: 20000, Endpoints: harness.Local(after...)})
		})
	}
}

// fromZooKeeper has providers register there as each framework does.
func (r *longRun) fromZooKeeper(t *testing.T) {
	t.Helper()
	r.znodes.Create(t, "/dubbo/metadata/src-app/rev1", `{"app":"src-app","revision":"rev1","services":{"api.SrcApp:tri":{"name":"api.SrcApp","protocol":"tri","path":"api.SrcApp","params":{"application":"src-app","interface":"api.SrcApp","side":"provider"}}}}`)
	for name, as := range map[string]func(port int) (at, data string){
		"api.Src": func(port int) (string, string) { return faults.Registered("api.Src", port), "" },
		"api.SrcApp": func(port int) (string, string) {
			id := fmt.Sprint("127.0.0.1:", port)
			return "/apps/src-app/" + id, fmt.Sprintf(`{"name":"src-app","id":%q,"address":"127.0.0.1","port":%d,"payload":{"@class":"org.apache.dubbo.registry.zookeeper.ZookeeperInstance","id":%[1]q,"name":"src-app","metadata":{"dubbo.endpoints":"[{\"port\":%[2]d,\"protocol\":\"tri\"}]","dubbo.metadata.revision":"rev1","dubbo.metadata.storage-type":"remote"}}}`, id, port)
		},
		"sc-za": func(port int) (string, string) {
			return fmt.Sprint("/services/sc-za/i-", port), fmt.Sprintf(`{"name":"sc-za","id":"i-%d","address":"127.0.0.1","port":%[1]d,"sslPort":null,"payload":{"@class":"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance","id":"sc-za","name":"sc-za","metadata":{"instance_status":"UP"}},"registrationTimeUTC":0,"serviceType":"DYNAMIC"}`, port)
		},
		"kr-zb": func(port int) (string, string) {
			return fmt.Sprint("/microservices/kr-zb/i-", port), fmt.Sprintf(`{"id":"i-%d","name":"kr-zb","version":"1.0","metadata":{},"endpoints":["grpc://127.0.0.1:%[1]d"]}`, port)
		},
		"hz-zc": func(port int) (string, string) {
			return fmt.Sprint("/hz-zc/127.0.0.1:", port), `{"Weight":10,"Tags":{}}`
		},
		"kx-zd": func(port int) (string, string) {
			return fmt.Sprint("/kx-zd/127.0.0.1:", port), `{"Weight":10,"Tags":{}}`
		},
		"pl-ze":  func(port int) (string, string) { return fmt.Sprint("/plain/pl-ze/127.0.0.1:", port), "" },
		"out-zf": func(port int) (string, string) { return fmt.Sprint("/outside/out-zf/127.0.0.1:", port), "" },
	} {
		s := r.add(t, name, func(t *testing.T, before, after []int) {
			for _, port := range after {
				if !slices.Contains(before, port) {
					at, data := as(port)
					r.znodes.Create(t, at, data)
				}
			}
			for _, port := range before {
				if !slices.Contains(after, port) {
					at, _ := as(port)
					r.znodes.Delete(t, at)
				}
			}
		})
		s.groups = []string{"zk " + name}
		r.Has(s.groups[0], faults.Addresses(s.ports...)...)
	}
}

// fromNacos has an application register there in every format that requires no
// document of its own.
func (r *longRun) fromNacos(t *testing.T) {
	t.Helper()
	for name, as := range map[string]struct {
		service  string
		metadata map[string]string
	}{
		"api.Nsrc": {faults.Key("api.Nsrc"), map[string]string{"protocol": "tri", "path": "api.Nsrc", "interface": "api.Nsrc", "side": "provider"}},
		"sc-na":    {"sc-na", map[string]string{"preserved.register.source": "SPRING_CLOUD"}},
		"kr-nb":    {"kr-nb.grpc", map[string]string{"kind": "grpc", "version": "1"}},
		"gz-nc":    {"gz-nc", nil},
		"hz-nd":    {"hz-nd", nil},
		"kx-ne":    {"kx-ne", nil},
		"pl-nf":    {"pl-nf", nil},
	} {
		s := r.add(t, name, func(t *testing.T, _, after []int) {
			var all []model.Instance
			for _, port := range after {
				all = append(all, model.Instance{Ip: "127.0.0.1", Port: uint64(port), Weight: 1, Enable: true, Healthy: true, Ephemeral: true, Metadata: as.metadata}) //nolint:gosec // a port
			}
			r.app.Register(t, as.service, all...)
		})
		s.groups = []string{"nacos " + name}
		r.Has(s.groups[0], faults.Addresses(s.ports...)...)
	}
}

// watchRegistries subscribes to the services of the mesh in both registries.
func (r *longRun) watchRegistries(t *testing.T) {
	t.Helper()
	parents := make(map[string]string)
	for n, s := range r.sources[:longServices] {
		for _, parent := range []string{
			faults.ProvidersPath(fmt.Sprint("api.Web", n)), fmt.Sprint("/apps/web-", n), fmt.Sprint("/services/sc-web-", n),
			fmt.Sprint("/microservices/kr-web-", n), fmt.Sprint("/hz-web-", n), fmt.Sprint("/kx-web-", n), fmt.Sprint("/plain/pl-web-", n),
		} {
			r.Subscribe("zk"+parent, "consumer", r.znodes.Watch(t, parent))
			parents[parent] = "zk" + parent
			s.groups = append(s.groups, "zk"+parent)
		}
		for _, service := range []string{faults.Key(fmt.Sprint("api.Web", n)), "sc-web-%d", "kr-web-%d.grpc", "hz-web-%d", "kx-web-%d", "pl-web-%d", "gz-web-%d"} {
			if strings.Contains(service, "%") {
				service = fmt.Sprintf(service, n)
			}
			r.Subscribe("nacos "+service, "consumer", r.sdk.Subscribe(t, service))
			s.groups = append(s.groups, "nacos "+service)
		}
		r.Subscribe(fmt.Sprint("nacos web-", n), "consumer", r.sdk.SubscribeIn(t, "APPS", fmt.Sprint("web-", n)))
		s.groups = append(s.groups, fmt.Sprint("nacos web-", n))
		for _, group := range s.groups {
			r.Has(group, faults.Addresses(s.ports...)...)
		}
	}
	r.Writes(harness.Log(r.zookeeper), parents, r.znodes)
}

// watchMesh subscribes to the services of the registries at istiod, by the one
// cluster that each has there.
func (r *longRun) watchMesh(t *testing.T) {
	t.Helper()
	for _, s := range r.sources[longServices:] {
		registry, _, _ := strings.Cut(s.groups[0], " ")
		var cluster string
		harness.Eventually(t, time.Minute, "a cluster of "+s.name, func() error {
			all := harness.Clusters(t, r.istiod.GRPC, "router")
			i := slices.IndexFunc(all, func(c string) bool { return represents(c, registry, s.name) })
			if i < 0 {
				return fmt.Errorf("none in %v", all)
			}
			cluster = all[i]
			return nil
		})
		r.Subscribe(s.groups[0], "a client of istiod", harness.WatchEndpoints(t, r.istiod.GRPC, cluster))
	}
}

// represents reports whether a cluster is that of a service of a registry, whose
// pattern is cut off there.
func represents(cluster, registry, service string) bool {
	_, host, _ := strings.Cut(cluster, "||")
	name, err := naming.MeshHosts{Registry: registry, Suffix: "bridge.internal"}.Parse(host)
	_, plain, _ := strings.Cut(service, "-")
	return err == nil && (name.Key.Interface == service || plain != "" && name.Name == plain)
}
