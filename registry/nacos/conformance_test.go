package nacos_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/xds-bridge/xds-bridge/internal/conformance"
	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

func groupN(n int) registry.Group {
	g := greeter
	g.Name = "providers:api.Service" + strconv.Itoa(n) + "::"
	return g
}

// marked makes entry i of group n in variant v with an owner's mark.
func marked(mark metadata.Mark) func(n, i, v int) registry.Entry {
	return func(n, i, v int) registry.Entry {
		return entry(groupN(n), fmt.Sprintf("10.%d.%d.%d", n, i/250, 1+i%250), mark, "variant", strconv.Itoa(v))
	}
}

// hostile makes an entry with a text in its metadata, in both directions, and where a
// cluster may be called so, in its key.
func hostile(text string) registry.Entry {
	in := metadata.NacosInstance{
		IP: "10.0.0.1", Port: 20000, Weight: 1, Healthy: true, Enabled: true, Ephemeral: true,
		Metadata: map[string]string{"text": text, "key " + text: "x", metadata.MarkKey: mine.String()},
	}
	in.Cluster = text
	if in.Check() != nil {
		in.Cluster = ""
	}
	return registry.Entry{Group: groupN(0), Key: in.Key(), Value: in.String()}
}

// TestTarget_Conformance runs the suite of all targets over real connections
// on loopback.
func TestTarget_Conformance(t *testing.T) {
	t.Parallel()
	for name, user := range map[string]string{"without a login": "", "with a login, lists in pages": "nacos"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Target(t, func(t *testing.T) conformance.Fixture {
				t.Helper()
				return fixture(t, user)
			})
		})
	}
}

func TestTarget_WatchedConformance(t *testing.T) {
	t.Parallel()
	conformance.Watched(t, func(t *testing.T) conformance.WatchedFixture {
		t.Helper()
		server := nacosfake.NewServer()
		r := start(t, server, func(*nacos.Options) {})
		target, err := nacos.NewTarget(r.client, nacos.TargetOptions{Owner: mine.Owner, Layouts: layouts(), ReadBack: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		entries := []registry.Entry{marked(mine)(0, 0, 0), marked(mine)(0, 1, 0)}
		return conformance.WatchedFixture{Target: target, Entries: entries, Disturb: func(*testing.T) {
			server.Set(service(entries[0].Group), "another", model.Instance{Ip: "10.9.9.9", Port: 1, Weight: 1, Healthy: true, Enable: true, Ephemeral: true})
		}}
	})
}

func fixture(t *testing.T, user string) conformance.Fixture {
	t.Helper()
	server := nacosfake.NewServer()
	server.Lag, server.User, server.Password = 100*time.Microsecond, user, "secret"
	r := start(t, server, func(o *nacos.Options) {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
		if user != "" {
			server.PageLimit = 2
			o.Username, o.Password = user, func() (string, error) { return "secret", nil }
		}
	})
	target, err := nacos.NewTarget(r.client, nacos.TargetOptions{Owner: mine.Owner, Layouts: layouts(), ReadBack: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return conformance.Fixture{
		Cut: func(*testing.T) {
			var once sync.Once
			server.Lose(func(q nacosfake.Request) bool {
				cut := false
				if q.Type == "BatchInstanceRequest" {
					once.Do(func() { cut = true; server.Drop() })
				}
				return cut
			})
		},
		Target: target, Owner: mine.Owner, Group: groupN, Entry: marked(mine), Foreign: marked(theirs), Hostile: hostile,
		Set: func(t *testing.T, e registry.Entry) {
			t.Helper()
			in, err := metadata.ParseNacosInstance(e.Value)
			if err != nil {
				t.Fatal(err)
			}
			server.Set(service(e.Group), "another", model.Instance{
				Ip: in.IP, Port: uint64(in.Port), Weight: in.Weight, Healthy: in.Healthy, Enable: in.Enabled,
				Ephemeral: in.Ephemeral, ClusterName: in.Cluster, Metadata: in.Metadata,
			})
			for !shows(t, target, e) {
				runtime.Gosched()
			}
		},
	}
}

// shows reports whether the server's reads have caught up with an entry.
func shows(t *testing.T, target registry.Target, e registry.Entry) bool {
	t.Helper()
	held, err := target.Read(t.Context(), e.Group)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(held, func(h registry.Stored) bool { return h.Entry == e })
}

func TestSource_Conformance(t *testing.T) {
	for name, fixture := range map[string]func(*suiteRig) conformance.SourceFixture{
		"interfaces": interfacesFixture, "applications": applicationsFixture,
	} {
		t.Run(name, func(t *testing.T) {
			conformance.Source(t, func(t *testing.T) conformance.SourceFixture {
				t.Helper()
				r := newSuiteRig(t)
				f := fixture(r)
				f.Source, f.Recheck = r.source, r.source.Recheck
				f.Dials = func() int { return int(r.dials.Load()) }
				f.Requests, f.Kept = r.server.RequestCount, r.server.Subscriptions
				f.Away = func() func() {
					r.down.Store(true)
					r.server.Drop()
					return func() { r.down.Store(false) }
				}
				return f
			})
		})
	}
}

// A suiteRig reads both formats of Dubbo. Requests for what is failing fail.
type suiteRig struct {
	*readRig
	dials atomic.Int32

	mu      sync.Mutex
	failing map[string]nacosfake.Fault // by what the body of a request holds
}

// receiveLimit has room for everything in the suite, except for entries that are meant to be too large.
const receiveLimit = 64 << 10

func newSuiteRig(t *testing.T) *suiteRig {
	t.Helper()
	t.Cleanup(func() { later(time.Minute) }) // slow requests end
	r := &suiteRig{failing: make(map[string]nacosfake.Fault)}
	interfaces, err := dubbo.NewNacos(dubbo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	applications, err := dubbo.NewNacosApp(dubbo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.readRig = newReadRig(t, func(o *nacos.Options, so *nacos.SourceOptions) {
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err == nil {
				r.dials.Add(1)
			}
			return conn, err
		}
		o.MaxReceive, o.Health = receiveLimit, 30*time.Second
		so.ListInterval, so.VerifyInterval = 30*time.Second, 100*time.Second // so that a day is short
		so.Formats = []nacos.Format{interfaces, applications}
		so.Asker = asks(func(ctx context.Context, _ metadata.Ref) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			<-ctx.Done()
			return "", errors.New("no answer")
		})
	})
	r.server.Fail(func(q nacosfake.Request) (int, string) {
		r.mu.Lock()
		var fault nacosfake.Fault
		for part, f := range r.failing {
			if strings.Contains(string(q.Body), part) {
				fault = f
			}
		}
		r.mu.Unlock()
		if fault == nil {
			return 0, ""
		}
		return fault(q)
	})
	return r
}

// fails makes requests fail of which the body holds something, and returns what
// ends that.
func (r *suiteRig) fails(part string, fault nacosfake.Fault) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing[part] = fault
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.failing, part)
	}
}

func answers(code int) nacosfake.Fault {
	return func(nacosfake.Request) (int, string) { return code, "refused by the test" }
}

func slowly(nacosfake.Request) (int, string) {
	time.Sleep(20 * time.Second)
	return 0, ""
}

// serviceFaults make the requests for a service fail.
func (r *suiteRig) serviceFaults(at func(n int) nacosfake.Service) map[string]func(*testing.T, int) func() {
	faults := map[string]func(*testing.T, int) func(){
		"an oversized answer": func(_ *testing.T, n int) func() {
			var many []model.Instance
			for i := range receiveLimit / 200 {
				many = append(many, model.Instance{
					Ip: fmt.Sprintf("10.200.%d.%d", i/250, i%250), Port: 1, Weight: 1, Enable: true, Healthy: true, Ephemeral: true,
					Metadata: map[string]string{"x": strings.Repeat("x", 200)},
				})
			}
			r.server.Set(at(n), "many", many...)
			return func() { r.server.Set(at(n), "many") }
		},
	}
	for name, fault := range map[string]nacosfake.Fault{
		"denied": answers(403), "broken": answers(500), "slow": slowly,
	} {
		faults[name] = func(_ *testing.T, n int) func() { return r.fails(`"`+at(n).Name+`"`, fault) }
	}
	return faults
}

func (r *suiteRig) set(sv nacosfake.Service, hosts []string, instance func(host string) model.Instance) {
	if len(hosts) == 0 {
		r.server.Remove(sv)
		return
	}
	var all []model.Instance
	for _, host := range hosts {
		all = append(all, instance(host))
	}
	r.server.Set(sv, "providers", all...)
}

func interfacesFixture(r *suiteRig) conformance.SourceFixture {
	iface := func(n int) string { return fmt.Sprintf("api.S%d", n) }
	at := func(n int) nacosfake.Service { return named(iface(n)) }
	return conformance.SourceFixture{
		Name: func(n int) registry.Name {
			return registry.Name("dubbo-interface:@DEFAULT_GROUP/" + at(n).Name)
		},
		Set: func(_ *testing.T, n int, hosts ...string) {
			r.set(at(n), hosts, func(host string) model.Instance { return instanceOf(iface(n), host) })
		},
		Faults: r.serviceFaults(at),
		Spoil: func(_ *testing.T, n int) int {
			r.server.Set(at(n), "bad",
				instanceOf(iface(n), "10.6.6.6", func(i *model.Instance) { i.Port = 1 << 20 }),
				instanceOf(iface(n), "10.6.6.7", func(i *model.Instance) { i.Metadata = map[string]string{"x": "y"} }))
			return 2
		},
	}
}

func applicationsFixture(r *suiteRig) conformance.SourceFixture {
	app := func(n int) string { return fmt.Sprintf("s%d", n) }
	at := func(n int) nacosfake.Service { return nacosfake.Service{Group: "DEFAULT_GROUP", Name: app(n)} }
	store := func(n int, revision string) {
		r.server.SetConfig(nacosfake.Config{Group: revision, DataID: app(n)}, strings.NewReplacer(`"shop"`, `"`+app(n)+`"`, "api.Shop", "api."+app(n)).Replace(document(revision)))
	}
	with := func(n int, host, revision string) func() {
		r.server.Set(at(n), host, shopInstance(host, revision))
		return func() { r.server.Set(at(n), host) }
	}
	faults := r.serviceFaults(at)
	faults["a document that is not stored"] = func(_ *testing.T, n int) func() { return with(n, "10.9.9.1", "late") }
	faults["a provider that does not answer"] = func(_ *testing.T, n int) func() { return with(n, "10.9.9.2", "own") }
	for name, fault := range map[string]nacosfake.Fault{
		"a denied document": answers(403), "a document that cannot be read": answers(500), "a slow document": slowly,
	} {
		faults[name] = func(_ *testing.T, n int) func() {
			revision := fmt.Sprintf("r%d-%d", n, len(name))
			store(n, revision)
			mend, gone := r.fails(`"`+revision+`"`, fault), with(n, "10.9.9.3", revision)
			return func() { mend(); gone() }
		}
	}
	return conformance.SourceFixture{
		Name: func(n int) registry.Name {
			return registry.Name("dubbo-application:@DEFAULT_GROUP/" + app(n) + "/providers:api." + app(n) + "::")
		},
		Set: func(_ *testing.T, n int, hosts ...string) {
			store(n, "r1")
			r.set(at(n), hosts, func(host string) model.Instance { return shopInstance(host, "r1") })
		},
		Faults: faults,
		Spoil: func(_ *testing.T, n int) int {
			bad := shopInstance("10.6.6.6", "r1")
			bad.Port = 1 << 20
			r.server.Set(at(n), "bad", bad, shopInstance("10.6.6.7", "bad revision"))
			return 2
		},
	}
}
