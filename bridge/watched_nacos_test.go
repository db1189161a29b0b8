package bridge_test

import (
	"context"
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
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

var sharedInNacos = nacosfake.Service{Group: "DEFAULT_GROUP", Name: "providers:api.Shared::"}

// TestLoop_OtherWritersInNacos shows what others do to a Nacos that is written to,
// and that it is as it was within a second, with the default refresh of five
// minutes.
func TestLoop_OtherWritersInNacos(t *testing.T) {
	others := model.Instance{
		Ip: "10.0.0.1", Port: 20000, Weight: 1, Enable: true, Healthy: true, Ephemeral: true, ClusterName: "DEFAULT",
		Metadata: map[string]string{"protocol": "tri", "category": "providers", "path": "api.Shared"},
	}
	for name, c := range map[string]struct {
		before  func(*nacosfake.Server) // our loop starts
		happens func(*nacosfake.Server)
		writes  int
	}{
		"give way": {
			before:  func(s *nacosfake.Server) { s.Set(sharedInNacos, "app", others) },
			happens: func(s *nacosfake.Server) { s.Set(sharedInNacos, "app") },
			writes:  1,
		},
		"give way after the connection was lost": {
			before: func(s *nacosfake.Server) { s.Set(sharedInNacos, "app", others) },
			happens: func(s *nacosfake.Server) {
				s.Drop()
				time.Sleep(time.Minute)
				s.Set(sharedInNacos, "app")
			},
			writes: 1,
		},
		"remove the service": {happens: func(s *nacosfake.Server) { s.Remove(sharedInNacos) }, writes: 1},
		"register beside ours": {happens: func(s *nacosfake.Server) {
			beside := others
			beside.Ip = "10.0.0.9"
			s.Set(sharedInNacos, "app", beside)
		}},
		"nothing": {happens: func(*nacosfake.Server) {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := nacosfake.NewServer()
				if c.before != nil {
					c.before(server)
				}
				table := registry.NewTable()
				loop := intoNacos(t, server, table)
				table.Replace(slices.Values([]*registry.Service{shared()}))
				time.Sleep(70 * time.Second)
				published := len(server.Requests("BatchInstanceRequest"))
				c.happens(server)
				time.Sleep(time.Second)
				if !oursIn(server) {
					t.Errorf("the server holds %+v after a second, want ours in it", server.Instances(sharedInNacos))
				}
				if st := loop.Status(); !st.InSync() {
					t.Errorf("Status() = %+v, want it in sync", st)
				}
				if n := len(server.Requests("BatchInstanceRequest")) - published; n != c.writes {
					t.Errorf("%d writes, want %d", n, c.writes)
				}
				time.Sleep(time.Minute) // what was written is read back
				before := server.RequestCount() - len(server.Requests("HealthCheckRequest"))
				time.Sleep(time.Minute) // with no refresh in it
				if n := server.RequestCount() - len(server.Requests("HealthCheckRequest")) - before; n != 0 {
					t.Errorf("%d requests in a minute in which nothing happened", n)
				}
				table.Delete("shared")
				time.Sleep(time.Hour)
				if n := server.Subscriptions(); n != 0 || oursIn(server) {
					t.Errorf("%d subscriptions after ours went, and %+v", n, server.Instances(sharedInNacos))
				}
			})
		})
	}
}

// TestLoop_AnEditInNacosStays: what somebody sets in the console Nacos keeps
// beside what is published, and consumers see it. It is shown, and fought by nobody.
func TestLoop_AnEditInNacosStays(t *testing.T) {
	for name, edit := range map[string]func(*model.Instance){
		"of the weight": func(in *model.Instance) { in.Weight = 7 },
		"that disables": func(in *model.Instance) { in.Enable = false },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, table := nacosfake.NewServer(), registry.NewTable()
				loop := intoNacos(t, server, table)
				table.Replace(slices.Values([]*registry.Service{shared()}))
				time.Sleep(70 * time.Second)
				published := len(server.Requests("BatchInstanceRequest"))
				server.Edit(sharedInNacos, edit)
				time.Sleep(time.Hour)
				if n := len(server.Requests("BatchInstanceRequest")) - published; oursIn(server) || n < 3 || n > 25 {
					t.Errorf("the server holds %+v after %d writes in an hour", server.Instances(sharedInNacos), n)
				}
				if sv := loop.Status().Services[0]; sv.Reason != bridge.ReasonRefused || !strings.Contains(sv.Detail+sv.LastError, "otherwise than it was written") {
					t.Errorf("it is shown as %+v", sv)
				}
				server.Edit(sharedInNacos, nil)
				time.Sleep(11 * time.Minute)
				if st := loop.Status(); !st.InSync() || !oursIn(server) {
					t.Errorf("Status() = %+v once it was withdrawn, want it in sync", st)
				}
			})
		})
	}
}

// TestLoop_WatchesNoServiceOfOthers has services that others alone register: what
// had to be watched before the source reported anything is watched no longer than
// until it changes.
func TestLoop_WatchesNoServiceOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := nacosfake.NewServer()
		another := func(n int) nacosfake.Service {
			return nacosfake.Service{Group: "DEFAULT_GROUP", Name: "providers:api.Another" + strconv.Itoa(n) + "::"}
		}
		const services = 20
		register := func(port uint64) {
			for n := range services {
				server.Set(another(n), "app", model.Instance{Ip: "10.9.9.9", Port: port, Enable: true, Healthy: true, Ephemeral: true})
			}
		}
		register(1)
		table := registry.NewTable()
		intoNacos(t, server, table)
		time.Sleep(time.Second)
		if n := server.Subscriptions(); n != services {
			t.Errorf("%d services are watched before the source reported any", n)
		}
		table.Replace(slices.Values([]*registry.Service{shared()}))
		time.Sleep(2 * time.Second)
		register(2)
		time.Sleep(2 * time.Second)
		if n := server.Subscriptions(); n != 1 {
			t.Errorf("%d services are watched, want ours alone", n)
		}
	})
}

// oursIn reports whether the shared service has an instance of ours as it is to be.
func oursIn(s *nacosfake.Server) bool {
	return slices.ContainsFunc(s.Instances(sharedInNacos), func(in model.Instance) bool {
		return strings.Contains(in.Metadata[metadata.MarkKey], metadata.NewMark("first", "b").Owner) && in.Enable && in.Weight == 1
	})
}

// inNacos is where the codec's services lie.
type inNacos struct{ *dubbo.Nacos }

// Scopes implements nacos.Layout.
func (inNacos) Scopes() []registry.Group {
	return []registry.Group{{Kind: dubbo.Kind, Group: "DEFAULT_GROUP"}}
}

// intoNacos runs a loop that writes a table to a Nacos.
func intoNacos(t *testing.T, server *nacosfake.Server, table *registry.Table) *bridge.Loop {
	t.Helper()
	rpc, web := bufconn.Listen(1<<20), bufconn.Listen(1<<20)
	server.Serve(rpc, web)
	t.Cleanup(server.Close)
	client, err := nacos.New(nacos.Options{
		Servers: []string{"http://nacos:8848"},
		Dialer:  func(ctx context.Context, _, _ string) (net.Conn, error) { return rpc.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	mark := metadata.NewMark("first", "b")
	codec, err := dubbo.NewNacos(dubbo.Options{Group: "DEFAULT_GROUP", Mark: mark})
	if err != nil {
		t.Fatal(err)
	}
	target, err := nacos.NewTarget(client, nacos.TargetOptions{Owner: mark.Owner, Layouts: []nacos.Layout{inNacos{codec}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- client.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return run(t, target, "first", bridge.Bridge{Name: "b", Table: table, Project: codec.Encode, Guard: timed()})
}
