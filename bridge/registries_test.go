package bridge_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
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

func sharedService(endpoints int) *registry.Service {
	s := &registry.Service{Name: "shared", Interfaces: []registry.Interface{{Name: "api.Shared"}}}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, registry.Endpoint{Host: fmt.Sprint("10.0.0.", i+1), Port: 20000})
	}
	return s
}

func mark(owner string) string { return metadata.NewMark(owner, "b").Owner }

// runs runs the loop of an owner, with the default refresh of five minutes.
func runs(t *testing.T, target registry.Target, owner string, project bridge.Project) *story {
	t.Helper()
	s := newStory(t).bridge("b", timed())
	s.bridges[0].Project = project
	s.opts = bridge.Options{Target: "target", Owner: metadata.Fingerprint(owner, metadata.OwnerLen)}
	return s.starts(target)
}

// A zooKeeper is a server, and the loops that write to it.
type zooKeeper struct {
	*testing.T
	*zkfake.Server
}

func newZooKeeper(t *testing.T) *zooKeeper {
	z := &zooKeeper{t, zkfake.New(zkfake.Options{})}
	t.Cleanup(func() { _ = z.Close() }) // it has no listener
	return z
}

// joins runs the loop of an owner, which writes interfaces.
func (z *zooKeeper) joins(owner string, change ...func(*zookeeper.TargetOptions)) *story {
	z.Helper()
	c, err := dubbo.NewZooKeeper(dubbo.Options{Mark: metadata.NewMark(owner, "b")})
	if err != nil {
		z.Fatal(err)
	}
	opts := zookeeper.TargetOptions{Owner: owner, Layouts: []zookeeper.Layout{c}}
	for _, f := range change {
		f(&opts)
	}
	return z.joinsWith(opts, c)
}

func (z *zooKeeper) joinsWith(opts zookeeper.TargetOptions, c metadata.Codec) *story {
	z.Helper()
	client, err := zookeeper.Dial(zookeeper.Options{Servers: []string{"server:2181"}, Dial: z.Dial})
	if err != nil {
		z.Fatal(err)
	}
	target, err := zookeeper.NewTarget(client, opts)
	if err != nil {
		z.Fatal(err)
	}
	z.Cleanup(client.Close)
	return runs(z.T, target, opts.Owner, c.Encode)
}

// rests fails the test if anything changes in an hour in which nothing happens.
func (z *zooKeeper) rests() {
	z.Helper()
	before := z.Changes()
	time.Sleep(time.Hour)
	if n := z.Changes() - before; n != 0 {
		z.Errorf("Changes() = %d in an hour, want none", n)
	}
}

// expects fails the test unless there are so many providers, all of an owner.
func (z *zooKeeper) expects(n int, owner string) {
	z.Helper()
	names := z.Children(providers)
	if len(names) != n || slices.ContainsFunc(names, func(name string) bool { return !strings.Contains(name, mark(owner)) }) {
		z.Errorf("Children() = %v, want %d of the %s", names, n, owner)
	}
}

// TestZooKeeper_OtherWriters: others change a ZooKeeper that the bridge writes to, and the
// bridge repairs it within a second.
func TestZooKeeper_OtherWriters(t *testing.T) {
	tests := map[string]func(*zooKeeper){
		"an instance that flaps costs no readings": func(z *zooKeeper) {
			s := z.joins("first").has(sharedService(1)).in(time.Minute)
			before := z.Count(zkfake.OpGetChildren2)
			for range 400 {
				if err := z.Put(providers+"/another", nil); err != nil {
					z.Fatal(err)
				}
				s.in(20 * ms)
				z.Delete(providers + "/another")
				s.in(5 * ms)
			}
			s.between("lists in ten seconds", z.Count(zkfake.OpGetChildren2)-before, 10, 25).inSync(true)
			z.Delete(providers)
			s.in(time.Second)
			z.expects(1, "first")
		},
		"a full parent has room again": func(z *zooKeeper) {
			s := z.joins("first", func(o *zookeeper.TargetOptions) { o.ChildrenLimit = 1000 })
			s.has(sharedService(10)).in(3*time.Minute).reason("shared", bridge.ReasonRefused, "")
			before := z.Children(providers)
			z.Delete(providers + "/" + before[0])
			s.in(time.Second).between("entries", len(before), 1, 9)
			z.expects(len(before), "first")
		},
	}
	for name, happens := range map[string]func(*zooKeeper){
		"delete an entry":   func(z *zooKeeper) { z.Delete(providers + "/" + z.Children(providers)[0]) },
		"delete the parent": func(z *zooKeeper) { z.Delete(providers) },
		"delete again and again": func(z *zooKeeper) {
			for range 30 {
				time.Sleep(300 * ms)
				z.Delete(providers)
			}
		},
	} {
		tests[name] = func(z *zooKeeper) {
			s := z.joins("first").has(sharedService(1)).in(time.Minute)
			happens(z)
			s.in(time.Second).inSync(true)
			z.expects(1, "first")
			z.rests()
		}
	}
	for _, gone := range []string{"/services", "/dubbo", "/dubbo/metadata", "/dubbo/shop", "/dubbo/mapping", "/dubbo/mapping/api.Shared"} {
		tests["delete "+gone+" of an application"] = func(z *zooKeeper) {
			c, err := dubbo.NewZooKeeperApp(dubbo.Options{Mark: metadata.NewMark("first", "b")})
			if err != nil {
				z.Fatal(err)
			}
			shop := sharedService(1)
			shop.Application = "shop"
			s := z.joinsWith(zookeeper.TargetOptions{Owner: "first", Layouts: []zookeeper.Layout{c}}, c).has(shop).in(time.Minute)
			before := z.Paths("/")
			z.Delete(gone)
			s.in(time.Second).is("Paths()", z.Paths("/"), before).inSync(true)
			z.rests()
		}
	}
	inBubbles(t, newZooKeeper, tests)
}

// TestZooKeeper_TwoOwners: two bridges of different owners write the same addresses.
func TestZooKeeper_TwoOwners(t *testing.T) {
	inBubbles(t, newZooKeeper, map[string]func(*zooKeeper){
		"the first has it until it withdraws": func(z *zooKeeper) {
			first := z.joins("first").has(sharedService(1)).in(time.Minute)
			second := z.joins("second").has(sharedService(1)).in(time.Minute)
			z.rests()
			z.expects(1, "first")
			second.is("conflicts of the second", len(second.status().Conflicts), 1)
			first.delete("shared")
			const step = 10 * ms
			away := time.Duration(0)
			for range 2 * time.Minute / step {
				if first.in(step); len(z.Children(providers)) == 0 {
					away += step
				}
			}
			z.expects(1, "second")
			second.between("ms without a provider", int(away/ms), 0, 1000)
		},
		"both begin at once": func(z *zooKeeper) { // before either can see what the other wrote
			const addresses = 30
			winner, loser := "first", "second"
			if mark(loser) < mark(winner) {
				winner, loser = loser, winner
			}
			w, l := z.joins(winner).has(), z.joins(loser).has()
			w.in(time.Second) // both know that there is nothing
			w.put(sharedService(addresses))
			l.put(sharedService(addresses)).in(100 * ms) // before either reads its write back
			w.is("nodes", len(z.Children(providers)), 2*addresses)
			for range 600 { // at no time are consumers without any
				w.in(time.Second).between("nodes", len(z.Children(providers)), addresses, 2*addresses)
				w.is("holds", w.loop.Summary().Counts.Holds+l.loop.Summary().Counts.Holds, 0)
			}
			z.expects(addresses, winner)
			w.is("conflicts", []int{w.loop.Summary().Counts.Conflicts, l.loop.Summary().Counts.Conflicts}, []int{0, addresses})
		},
	})
}

var sharedInNacos = nacosfake.Service{Group: "DEFAULT_GROUP", Name: "providers:api.Shared::"}

// A nacosServer is a server, and a loop that writes to it.
type nacosServer struct {
	*testing.T
	*nacosfake.Server
}

func newNacosServer(t *testing.T) *nacosServer { return &nacosServer{t, nacosfake.NewServer()} }

// inNacos is a layout with the services of the codec.
type inNacos struct{ *dubbo.Nacos }

// Scopes implements nacos.Layout.
func (inNacos) Scopes() []registry.Group {
	return []registry.Group{{Kind: dubbo.Kind, Group: "DEFAULT_GROUP"}}
}

// joins runs the loop.
func (n *nacosServer) joins() *story {
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
	background(n.T, client.Run)
	return runs(n.T, target, "first", c.Encode)
}

// writes returns how often our instance was published.
func (n *nacosServer) writes() int { return len(n.Requests("BatchInstanceRequest")) }

// ours reports whether the shared service has our instance as desired.
func (n *nacosServer) ours() bool {
	return slices.ContainsFunc(n.Instances(sharedInNacos), func(in model.Instance) bool {
		return strings.Contains(in.Metadata[metadata.MarkKey], mark("first")) && in.Enable && in.Weight == 1
	})
}

// TestNacos_OtherWriters: others change a Nacos that the bridge writes to, and the bridge
// repairs it within a second.
func TestNacos_OtherWriters(t *testing.T) {
	others := model.Instance{
		Ip: "10.0.0.1", Port: 20000, Weight: 1, Enable: true, Healthy: true, Ephemeral: true, ClusterName: "DEFAULT",
		Metadata: map[string]string{
			"protocol": "tri", "category": "providers", "path": "api.Shared", metadata.MarkKey: metadata.NewMark("second", "b").String(),
		},
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
		"register next to ours": {nothing, func(n *nacosServer) {
			next := others
			next.Ip = "10.0.0.9"
			n.Set(sharedInNacos, "app", next)
		}, 0},
	} {
		tests[name] = func(n *nacosServer) {
			c.before(n)
			s := n.joins().has(sharedService(1)).in(70 * time.Second)
			published := n.writes()
			c.happens(n)
			s.in(time.Second).is("writes", n.writes()-published, c.writes).is("ours", n.ours(), true).inSync(true)
			s.in(time.Minute) // the write is read back
			requests := func() int { return n.RequestCount() - len(n.Requests("HealthCheckRequest")) }
			before := requests()
			s.in(time.Minute).is("requests in a minute", requests()-before, 0) // with no refresh in it
			s.delete("shared").in(time.Hour).is("subscriptions", n.Subscriptions(), 0).is("ours", n.ours(), false)
		}
	}
	// They are watched until they change, if the source has reported something.
	tests["services that only others register"] = func(n *nacosServer) {
		const services = 20
		register := func(port uint64) {
			for i := range services {
				another := nacosfake.Service{Group: "DEFAULT_GROUP", Name: "providers:api.Another" + strconv.Itoa(i) + "::"}
				n.Set(another, "app", model.Instance{Ip: "10.9.9.9", Port: port, Enable: true, Healthy: true, Ephemeral: true})
			}
		}
		register(1)
		s := n.joins().in(time.Second).is("subscriptions", n.Subscriptions(), services)
		s.has(sharedService(1)).in(2 * time.Second)
		register(2)
		s.in(2*time.Second).is("subscriptions", n.Subscriptions(), 1)
	}
	inBubbles(t, newNacosServer, tests)
}
