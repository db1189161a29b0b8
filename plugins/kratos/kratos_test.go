package kratos_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	kratos "github.com/go-kratos/kratos/v2"
	"github.com/go-kratos/kratos/v2/registry"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	zkfake "github.com/xds-bridge/xds-bridge/internal/fake/zookeeper"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	xzk "github.com/xds-bridge/xds-bridge/plugins/client/zookeeper"
	xkratos "github.com/xds-bridge/xds-bridge/plugins/kratos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

func member(t *testing.T, r *clientfake.Registry) *xkratos.Registry {
	t.Helper()
	return xkratos.New(clientfake.Member(t, r, client.Options{}))
}

// TestRegistrar_Lifetime: a real Kratos application registers, and a real Kratos client calls it by its
// name.
func TestRegistrar_Lifetime(t *testing.T) {
	r := clientfake.New()
	server := kgrpc.NewServer(kgrpc.Address("127.0.0.1:0"))
	app := kratos.New(kratos.Name("greeter"), kratos.Version("v1"), kratos.Metadata(map[string]string{"team": "shop"}),
		kratos.Server(server), kratos.Registrar(member(t, r)))
	ended := make(chan error, 1)
	go func() { ended <- app.Run() }()

	consumer := member(t, r)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := consumer.Watch(ctx, "greeter")
	if err != nil {
		t.Fatal(err)
	}
	found, err := w.Next()
	if err != nil {
		t.Fatal(err)
	}
	at, err := server.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || found[0].Version != "v1" || found[0].Metadata["team"] != "shop" || len(found[0].Endpoints) != 1 || found[0].Endpoints[0] != (&url.URL{Scheme: "grpc", Host: at.Host}).String() {
		t.Errorf("found %+v, want one at %s", found, at)
	}
	conn, err := kgrpc.DialInsecure(ctx, kgrpc.WithEndpoint("discovery:///greeter"), kgrpc.WithDiscovery(consumer), kgrpc.WithOptions(grpc.WithDefaultCallOptions(grpc.WaitForReady(true))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	if err := app.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for len(found) > 0 {
		if found, err = w.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := w.Next(); err == nil {
		t.Error("a watcher continues after Stop")
	}
}

func TestDiscovery_InstanceEndpoints(t *testing.T) {
	r := clientfake.New()
	provider, consumer := member(t, r), member(t, r)
	both := &registry.ServiceInstance{ID: "1", Name: "greeter", Endpoints: []string{"grpc://10.0.0.1:9000?isSecure=true", "http://10.0.0.1:8000"}}
	if err := provider.Register(t.Context(), both); err != nil {
		t.Fatal(err)
	}
	w, err := consumer.Watch(t.Context(), "greeter")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Stop() }()
	for {
		found, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 1 && len(found[0].Endpoints) == 2 {
			if found[0].ID != "1" || found[0].Endpoints[0] != both.Endpoints[0] || found[0].Endpoints[1] != both.Endpoints[1] {
				t.Errorf("%+v", found[0])
			}
			break
		}
	}
	again, err := consumer.GetService(t.Context(), "greeter")
	if err != nil || len(again) != 1 {
		t.Errorf("%v, %v", again, err)
	}
	if err := provider.Register(t.Context(), &registry.ServiceInstance{Name: "greeter", Endpoints: []string{"grpc://nowhere"}}); err == nil {
		t.Error("an endpoint without a port is accepted")
	}
}

// TestDiscovery_SharedID: Kratos clients call only one endpoint of each scheme of an instance.
func TestDiscovery_SharedID(t *testing.T) {
	r := clientfake.New()
	for _, endpoint := range []string{"grpc://10.0.0.1:9000", "grpc://10.0.0.1:9001"} {
		if err := member(t, r).Register(t.Context(), &registry.ServiceInstance{ID: "host", Name: "greeter", Endpoints: []string{endpoint}}); err != nil {
			t.Fatal(err)
		}
	}
	w, err := member(t, r).Watch(t.Context(), "greeter")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Stop() }()
	for {
		found, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		endpoints := 0
		for _, i := range found {
			endpoints += len(i.Endpoints)
		}
		if endpoints < 2 {
			continue // the second instance is not reported yet
		}
		if len(found) != 2 || found[0].ID != "10.0.0.1:9001" || found[1].ID != "host" {
			t.Errorf("two servers are %d instances, the first %+v", len(found), found[0])
		}
		return
	}
}

func ensembleMember(t *testing.T, s *zkfake.Server, identity string) *xkratos.Registry {
	t.Helper()
	b, err := xzk.New(xzk.Options{
		Format: "kratos", Identity: identity, Conn: zookeeper.Options{Servers: []string{"server:2181"}, Dial: s.Dial},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(b, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return xkratos.New(c)
}

// TestDiscovery_Protocols: of nodes of Kratos' own registry, Kratos clients call the endpoint for grpc.
func TestDiscovery_Protocols(t *testing.T) {
	for name, data := range map[string]string{
		"a weight that is no number": `"metadata":{"weight":"high"},"endpoints":["grpc://10.0.0.1:9000"]`,
		"a weight with a fraction":   `"metadata":{"weight":"1.5"},"endpoints":["grpc://10.0.0.1:9000"]`,
		"a broker beside":            `"metadata":null,"endpoints":["grpc://10.0.0.1:9000","kafka://broker:9092"]`,
		"an endpoint without a port": `"metadata":null,"endpoints":["asynq://10.0.0.1","grpc://10.0.0.1:9000"]`,
	} {
		t.Run(name, func(t *testing.T) {
			s := zkfake.New(zkfake.Options{})
			t.Cleanup(func() { _ = s.Close() })
			if err := s.PutEphemeral("/microservices/greeter/a", []byte(`{"id":"a","name":"greeter","version":"",`+data+`}`), 4711); err != nil {
				t.Fatal(err)
			}
			found, err := ensembleMember(t, s, "").GetService(t.Context(), "greeter")
			if err != nil {
				t.Fatal(err)
			}
			var callable []string
			for _, i := range found {
				for _, e := range i.Endpoints {
					if strings.HasPrefix(e, "grpc://") {
						callable = append(callable, e)
					}
				}
			}
			if len(callable) != 1 || callable[0] != "grpc://10.0.0.1:9000" {
				t.Errorf("found %v", callable)
			}
		})
	}
}

// TestRegistrar_UnpublishableServer: Kratos ends an application if its registration fails.
func TestRegistrar_UnpublishableServer(t *testing.T) {
	r := clientfake.New()
	s := &registry.ServiceInstance{ID: "1", Name: "greeter", Endpoints: []string{"grpc://10.0.0.1:9000", "kafka://broker:9092"}}
	provider := member(t, r)
	if err := provider.Register(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w, err := member(t, r).Watch(t.Context(), "greeter")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Stop() }()
	if found, err := w.Next(); err != nil || len(found) != 1 || len(found[0].Endpoints) != 1 {
		t.Errorf("found %v, %v", found, err)
	}
	if err := provider.Deregister(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// TestRegistrar_ZeroWeight: in Kratos' format, 0 means that there is no weight.
func TestRegistrar_ZeroWeight(t *testing.T) {
	r := clientfake.New()
	s := &registry.ServiceInstance{ID: "1", Name: "greeter", Metadata: map[string]string{"weight": "0"}, Endpoints: []string{"grpc://10.0.0.1:9000"}}
	if err := member(t, r).Register(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w, err := member(t, r).Watch(t.Context(), "greeter")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Stop() }()
	if found, err := w.Next(); err != nil || found[0].Metadata["weight"] != "1" {
		t.Errorf("found %+v, %v", found, err)
	}
}

// TestRegistrar_OneNode: as in Kratos' own registry, all endpoints of an instance are one node, also
// endpoints of the same port.
func TestRegistrar_OneNode(t *testing.T) {
	for name, endpoints := range map[string][]string{
		"one port":  {"http://10.0.0.1:80", "grpc://10.0.0.1:80"},
		"two ports": {"http://10.0.0.1:80", "grpc://10.0.0.1:81"},
	} {
		t.Run(name, func(t *testing.T) {
			s := zkfake.New(zkfake.Options{})
			t.Cleanup(func() { _ = s.Close() })
			r := ensembleMember(t, s, "one")
			both := &registry.ServiceInstance{ID: "1", Name: "greeter", Endpoints: endpoints}
			if err := r.Register(t.Context(), both); err != nil {
				t.Fatal(err)
			}
			consumer := ensembleMember(t, s, "")
			w, err := consumer.Watch(t.Context(), "greeter")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = w.Stop() }()
			for found := 0; found < 2; {
				all, err := w.Next()
				if err != nil || len(all) != 1 || all[0].ID != "1" {
					t.Fatalf("found %+v, %v; want one instance", all, err)
				}
				found = len(all[0].Endpoints)
			}
			if nodes := s.Children("/microservices/greeter"); len(nodes) != 1 {
				t.Errorf("nodes %v, want one", nodes)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := r.Deregister(ctx, both); err != nil {
				t.Error(err)
			}
			if nodes := s.Children("/microservices/greeter"); len(nodes) != 0 {
				t.Errorf("nodes %v after it, want none", nodes)
			}
		})
	}
}

// TestWatcher_Stop: Kratos' resolver ends silently only for context.Canceled.
func TestWatcher_Stop(t *testing.T) {
	w, err := member(t, clientfake.New()).Watch(t.Context(), "greeter")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := w.Next(); !errors.Is(err, context.Canceled) || !errors.Is(err, client.ErrClosed) {
		t.Errorf("Next() = %v, want context.Canceled and ErrClosed", err)
	}
}
