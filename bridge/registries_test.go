package bridge_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"google.golang.org/grpc/test/bufconn"

	"github.com/xds-bridge/xds-bridge/bridge"
	nacosfake "github.com/xds-bridge/xds-bridge/internal/fake/nacos"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

const providers = "/dubbo/api.Shared/providers"

// sharedService has so many endpoints.
func sharedService(endpoints int) *registry.Service {
	s := &registry.Service{Name: "shared", Interfaces: []registry.Interface{{Name: "api.Shared"}}}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: fmt.Sprint("10.0.0.", i+1), Port: 20000})
	}
	return s
}

func mark(owner string) string { return metadata.NewMark(owner, "b").Owner }

// process runs something until the test ends.
func process(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// run runs the loop of an owner, with the default refresh of five minutes.
func run(t *testing.T, target registry.Target, owner string, project bridge.Project) (*bridge.Loop, *registry.Table) {
	t.Helper()
	table := registry.NewTable()
	loop, err := bridge.New(target, []bridge.Bridge{{Name: "b", Table: table, Project: project, Guard: timed()}}, bridge.Options{
		Target: "target", Owner: metadata.Fingerprint(owner, metadata.OwnerLen), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	process(t, loop.Run)
	return loop, table
}

func inSync(t *testing.T, loop *bridge.Loop) {
	t.Helper()
	if st := loop.Status(); !st.InSync() {
		t.Errorf("Status() = %+v, want it in sync", st)
	}
}

// A zooKeeper is a server, and the loops that write to it.
type zooKeeper struct {
	*testing.T
	*zkfake.Server
}

// zooKeepers runs tests of a ZooKeeper.
func zooKeepers(t *testing.T, tests map[string]func(*zooKeeper)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &zooKeeper{t, zkfake.New(zkfake.Options{})}
				defer k.Close() //nolint:errcheck // it has no listener
				test(k)
			})
		})
	}
}

// codec is one that a ZooKeeper has.
type codec interface {
	metadata.Codec
	zookeeper.Layout
}

// joins runs the loop of an owner, which writes interfaces.
func (k *zooKeeper) joins(owner string, change ...func(*zookeeper.TargetOptions)) (*bridge.Loop, *registry.Table) {
	k.Helper()
	c, err := dubbo.NewZooKeeper(dubbo.Options{Mark: metadata.NewMark(owner, "b")})
	if err != nil {
		k.Fatal(err)
	}
	return k.joinsBy(owner, c, change...)
}

func (k *zooKeeper) joinsBy(owner string, c codec, change ...func(*zookeeper.TargetOptions)) (*bridge.Loop, *registry.Table) {
	k.Helper()
	client, err := zookeeper.Dial(zookeeper.Options{Servers: []string{"server:2181"}, Dial: k.Dial})
	if err != nil {
		k.Fatal(err)
	}
	opts := zookeeper.TargetOptions{Owner: owner, Layouts: []zookeeper.Layout{c}}
	for _, f := range change {
		f(&opts)
	}
	target, err := zookeeper.NewTarget(client, opts)
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(client.Close)
	return run(k.T, target, owner, c.Encode)
}

// rests fails the test if anything changes in an hour in which nothing happens.
func (k *zooKeeper) rests() {
	k.Helper()
	before := k.Changes()
	time.Sleep(time.Hour)
	if n := k.Changes() - before; n != 0 {
		k.Errorf("Changes() = %d in an hour, want none", n)
	}
}

// expects fails the test unless there are so many providers, all of an owner.
func (k *zooKeeper) expects(n int, owner string) {
	k.Helper()
	names := k.Children(providers)
	if len(names) != n || slices.ContainsFunc(names, func(name string) bool { return !strings.Contains(name, mark(owner)) }) {
		k.Errorf("Children() = %v, want %d of the %s", names, n, owner)
	}
}

// TestZooKeeper_OtherWriters shows what others do to a ZooKeeper that is written to,
// and that it is as it was within a second.
func TestZooKeeper_OtherWriters(t *testing.T) {
	tests := map[string]func(*zooKeeper){
		"an instance that flaps costs no readings": func(k *zooKeeper) {
			loop, table := k.joins("first")
			table.Replace(slices.Values([]*registry.Service{sharedService(1)}))
			time.Sleep(time.Minute)
			before := k.Count(zkfake.OpGetChildren2)
			for range 400 {
				if err := k.Put(providers+"/another", nil); err != nil {
					k.Fatal(err)
				}
				time.Sleep(20 * ms)
				k.Delete(providers + "/another")
				time.Sleep(5 * ms)
			}
			if n := k.Count(zkfake.OpGetChildren2) - before; n < 10 || n > 25 {
				k.Errorf("listed %d times in ten seconds, want twice a second", n)
			}
			inSync(k.T, loop)
			k.Delete(providers)
			time.Sleep(time.Second)
			k.expects(1, "first")
		},
		"a full parent has room again": func(k *zooKeeper) {
			loop, table := k.joins("first", func(o *zookeeper.TargetOptions) { o.ChildrenLimit = 1000 })
			table.Replace(slices.Values([]*registry.Service{sharedService(10)}))
			time.Sleep(3 * time.Minute)
			before := k.Children(providers)
			if st := loop.Status(); len(before) == 10 || st.Services[0].Reason != bridge.ReasonRefused {
				k.Fatalf("Children() = %d entries, Status() = %+v, want some of ten refused", len(before), st)
			}
			k.Delete(providers + "/" + before[0])
			time.Sleep(time.Second)
			k.expects(len(before), "first")
		},
	}
	for name, happens := range map[string]func(*zooKeeper){
		"delete an entry":   func(k *zooKeeper) { k.Delete(providers + "/" + k.Children(providers)[0]) },
		"delete the parent": func(k *zooKeeper) { k.Delete(providers) },
		"delete just after a write": func(k *zooKeeper) {
			time.Sleep(ms)
			k.Delete("/dubbo")
		},
		"delete again and again": func(k *zooKeeper) {
			for range 30 {
				time.Sleep(300 * ms)
				k.Delete(providers)
			}
		},
	} {
		tests[name] = func(k *zooKeeper) {
			loop, table := k.joins("first")
			table.Replace(slices.Values([]*registry.Service{sharedService(1)}))
			time.Sleep(time.Minute)
			n := 1
			if strings.HasSuffix(name, "write") {
				n++
				table.Put(sharedService(n))
			}
			happens(k)
			time.Sleep(time.Second)
			k.expects(n, "first")
			inSync(k.T, loop)
			k.rests()
		}
	}
	for _, gone := range []string{"/services", "/dubbo", "/dubbo/metadata", "/dubbo/shop", "/dubbo/mapping", "/dubbo/mapping/api.Shared"} {
		tests["delete "+gone+" of an application"] = func(k *zooKeeper) {
			c, err := dubbo.NewZooKeeperApp(dubbo.Options{Mark: metadata.NewMark("first", "b")})
			if err != nil {
				k.Fatal(err)
			}
			loop, table := k.joinsBy("first", c)
			shop := sharedService(1)
			shop.Application = "shop"
			table.Replace(slices.Values([]*registry.Service{shop}))
			time.Sleep(time.Minute)
			before := k.Paths("/")
			k.Delete(gone)
			time.Sleep(time.Second)
			if after := k.Paths("/"); !slices.Equal(after, before) {
				k.Errorf("Paths() = %v after a second, want %v", after, before)
			}
			inSync(k.T, loop)
			k.rests()
		}
	}
	zooKeepers(t, tests)
}

// TestZooKeeper_TwoOwners has two bridges of different owners bring the same addresses.
func TestZooKeeper_TwoOwners(t *testing.T) {
	zooKeepers(t, map[string]func(*zooKeeper){
		"the first has the address until it withdraws": func(k *zooKeeper) {
			_, first := k.joins("first")
			first.Replace(slices.Values([]*registry.Service{sharedService(1)}))
			time.Sleep(time.Minute)
			loop, second := k.joins("second")
			second.Replace(slices.Values([]*registry.Service{sharedService(1)}))
			time.Sleep(time.Minute)
			k.rests()
			k.expects(1, "first")
			if c := loop.Status().Conflicts; len(c) != 1 {
				k.Errorf("Conflicts = %+v of the second, want one", c)
			}
			first.Delete("shared")
			const step = 10 * ms
			away := time.Duration(0)
			for range 2 * time.Minute / step {
				if time.Sleep(step); len(k.Children(providers)) == 0 {
					away += step
				}
			}
			if k.expects(1, "second"); away > time.Second {
				k.Errorf("no provider for %v, want at most a second", away)
			}
		},
		"both begin at once": func(k *zooKeeper) { // before either can see what the other wrote
			const addresses = 30
			winner, loser := "first", "second"
			if mark(loser) < mark(winner) {
				winner, loser = loser, winner
			}
			loops, tables := make(map[string]*bridge.Loop), make(map[string]*registry.Table)
			for _, owner := range []string{"first", "second"} {
				loops[owner], tables[owner] = k.joins(owner)
				tables[owner].Replace(slices.Values([]*registry.Service{}))
			}
			time.Sleep(time.Second) // by now both know that there is nothing
			for _, table := range tables {
				table.Put(sharedService(addresses))
			}
			time.Sleep(100 * ms) // before either reads back what it wrote
			if n := len(k.Children(providers)); n != 2*addresses {
				k.Fatalf("Children() = %d nodes, want those of both", n)
			}
			for range 600 { // nobody is to be left without any, at no time
				time.Sleep(time.Second)
				if n := len(k.Children(providers)); n < addresses {
					k.Fatalf("Children() = %d nodes, fewer than there are addresses", n)
				}
				for owner, l := range loops {
					if c := l.Summary().Counts; c.Holds > 0 {
						k.Fatalf("Summary() of the %s = %+v, want no hold", owner, c)
					}
				}
			}
			k.expects(addresses, winner)
			if w, l := loops[winner].Summary().Counts.Conflicts, loops[loser].Summary().Counts.Conflicts; w != 0 || l != addresses {
				k.Errorf("conflicts = %d of the winner and %d of the other, want 0 and %d", w, l, addresses)
			}
		},
	})
}

var sharedInNacos = nacosfake.Service{Group: "DEFAULT_GROUP", Name: "providers:api.Shared::"}

// A nacosServer is a server, and a loop that writes to it.
type nacosServer struct {
	*testing.T
	*nacosfake.Server
	loop  *bridge.Loop
	table *registry.Table
}

// nacosServers runs tests of a Nacos.
func nacosServers(t *testing.T, tests map[string]func(*nacosServer)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(&nacosServer{T: t, Server: nacosfake.NewServer()}) })
		})
	}
}

// inNacos is where the codec's services lie.
type inNacos struct{ *dubbo.Nacos }

// Scopes implements nacos.Layout.
func (inNacos) Scopes() []registry.Group {
	return []registry.Group{{Kind: dubbo.Kind, Group: "DEFAULT_GROUP"}}
}

// starts runs the loop.
func (n *nacosServer) starts() {
	n.Helper()
	rpc, web := bufconn.Listen(1<<20), bufconn.Listen(1<<20)
	n.Serve(rpc, web)
	n.Cleanup(n.Close)
	client, err := nacos.New(nacos.Options{
		Servers: []string{"http://nacos:8848"},
		Dialer:  func(ctx context.Context, _, _ string) (net.Conn, error) { return rpc.DialContext(ctx) },
	})
	if err != nil {
		n.Fatal(err)
	}
	c, err := dubbo.NewNacos(dubbo.Options{Group: "DEFAULT_GROUP", Mark: metadata.NewMark("first", "b")})
	if err != nil {
		n.Fatal(err)
	}
	target, err := nacos.NewTarget(client, nacos.TargetOptions{Owner: mark("first"), Layouts: []nacos.Layout{inNacos{c}}})
	if err != nil {
		n.Fatal(err)
	}
	process(n.T, client.Run)
	n.loop, n.table = run(n.T, target, "first", c.Encode)
}

// writes is how often ours was published.
func (n *nacosServer) writes() int { return len(n.Requests("BatchInstanceRequest")) }

// ours reports whether the shared service has an instance of ours as it is to be.
func (n *nacosServer) ours() bool {
	return slices.ContainsFunc(n.Instances(sharedInNacos), func(in model.Instance) bool {
		return strings.Contains(in.Metadata[metadata.MarkKey], mark("first")) && in.Enable && in.Weight == 1
	})
}

// TestNacos_OtherWriters shows what others do to a Nacos that is written to, and that
// it is as it was within a second.
func TestNacos_OtherWriters(t *testing.T) {
	others := model.Instance{
		Ip: "10.0.0.1", Port: 20000, Weight: 1, Enable: true, Healthy: true, Ephemeral: true, ClusterName: "DEFAULT",
		Metadata: map[string]string{"protocol": "tri", "category": "providers", "path": "api.Shared"},
	}
	first := func(n *nacosServer) { n.Set(sharedInNacos, "app", others) }
	nothing := func(*nacosServer) {}
	tests := make(map[string]func(*nacosServer))
	for name, c := range map[string]struct {
		before, happens func(*nacosServer)
		writes          int
	}{
		"give way": {first, func(n *nacosServer) { n.Set(sharedInNacos, "app") }, 1},
		"give way after the connection was lost": {first, func(n *nacosServer) {
			n.Drop()
			time.Sleep(time.Minute)
			n.Set(sharedInNacos, "app")
		}, 1},
		"remove the service": {nothing, func(n *nacosServer) { n.Remove(sharedInNacos) }, 1},
		"register beside ours": {nothing, func(n *nacosServer) {
			beside := others
			beside.Ip = "10.0.0.9"
			n.Set(sharedInNacos, "app", beside)
		}, 0},
	} {
		tests[name] = func(n *nacosServer) {
			c.before(n)
			n.starts()
			n.table.Replace(slices.Values([]*registry.Service{sharedService(1)}))
			time.Sleep(70 * time.Second)
			published := n.writes()
			c.happens(n)
			time.Sleep(time.Second)
			if got := n.writes() - published; !n.ours() || got != c.writes {
				n.Errorf("after %d writes the server holds %+v, want ours after %d", got, n.Instances(sharedInNacos), c.writes)
			}
			inSync(n.T, n.loop)
			time.Sleep(time.Minute) // what was written is read back
			requests := func() int { return n.RequestCount() - len(n.Requests("HealthCheckRequest")) }
			before := requests()
			time.Sleep(time.Minute) // with no refresh in it
			if got := requests() - before; got != 0 {
				n.Errorf("%d requests in a minute in which nothing happened", got)
			}
			n.table.Delete("shared")
			time.Sleep(time.Hour)
			if got := n.Subscriptions(); got != 0 || n.ours() {
				n.Errorf("%d subscriptions after ours went, and %+v", got, n.Instances(sharedInNacos))
			}
		}
	}
	nacosServers(t, tests)
}

// TestNacos_Edits shows that what somebody sets in the console, which Nacos keeps
// beside what is published, is shown and fought by nobody.
func TestNacos_Edits(t *testing.T) {
	edit := func(change func(*model.Instance)) func(*nacosServer) {
		return func(n *nacosServer) {
			n.starts()
			n.table.Replace(slices.Values([]*registry.Service{sharedService(1)}))
			time.Sleep(70 * time.Second)
			published := n.writes()
			n.Edit(sharedInNacos, change)
			time.Sleep(time.Hour)
			if got := n.writes() - published; n.ours() || got < 3 || got > 25 {
				n.Errorf("the server holds %+v after %d writes in an hour, want the edit after 3 to 25", n.Instances(sharedInNacos), got)
			}
			sv := n.loop.Status().Services[0]
			if sv.Reason != bridge.ReasonRefused || !strings.Contains(sv.Detail+sv.LastError, "otherwise than it was written") {
				n.Errorf("Services[0] = %+v, want it refused", sv)
			}
			n.Edit(sharedInNacos, nil)
			time.Sleep(11 * time.Minute)
			if inSync(n.T, n.loop); !n.ours() {
				n.Errorf("the server holds %+v once the edit was withdrawn, want ours", n.Instances(sharedInNacos))
			}
		}
	}
	nacosServers(t, map[string]func(*nacosServer){
		"of the weight": edit(func(in *model.Instance) { in.Weight = 7 }),
		"that disables": edit(func(in *model.Instance) { in.Enable = false }),
	})
}

// TestNacos_Subscriptions has services that others alone register: they are watched
// no longer than until they change, if the source reported something by then.
func TestNacos_Subscriptions(t *testing.T) {
	nacosServers(t, map[string]func(*nacosServer){"services of others": func(n *nacosServer) {
		const services = 20
		register := func(port uint64) {
			for i := range services {
				another := nacosfake.Service{Group: "DEFAULT_GROUP", Name: "providers:api.Another" + strconv.Itoa(i) + "::"}
				n.Set(another, "app", model.Instance{Ip: "10.9.9.9", Port: port, Enable: true, Healthy: true, Ephemeral: true})
			}
		}
		watched := func(want int) {
			n.Helper()
			if got := n.Subscriptions(); got != want {
				n.Errorf("Subscriptions() = %d, want %d", got, want)
			}
		}
		register(1)
		n.starts()
		time.Sleep(time.Second)
		watched(services)
		n.table.Replace(slices.Values([]*registry.Service{sharedService(1)}))
		time.Sleep(2 * time.Second)
		register(2)
		time.Sleep(2 * time.Second)
		watched(1)
	}})
}
