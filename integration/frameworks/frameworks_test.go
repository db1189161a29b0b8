// Package frameworks_test shows that frameworks call through what the
// bridge wrote and are called through what it read, in ZooKeeper and in Nacos.
package frameworks_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/client"
	"github.com/cloudwego/hertz/pkg/app/client/discovery"
	"github.com/cloudwego/hertz/pkg/app/middlewares/client/sd"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/app/server/registry"
	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/common/utils"
	kratosapp "github.com/go-kratos/kratos/v2"
	kratos "github.com/go-kratos/kratos/v2/registry"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	khttp "github.com/go-kratos/kratos/v2/transport/http"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/integration/harness/nacossdk"
)

const soon = time.Minute

// world is ZooKeeper and Nacos with a bridge in each direction.
type world struct {
	zookeeper string // its address
	nacos     *harness.Nacos
	znodes    *harness.Znodes
	sdk       *subscriptions
	cells     []string // of the table
}

func newWorld(t *testing.T) *world {
	t.Helper()
	nacos := harness.SharedNacos(t, 2)
	zookeeper := harness.StartZooKeeper(t)
	w := &world{
		zookeeper: zookeeper.Address, nacos: nacos, znodes: harness.Connect(t, zookeeper.Address),
		sdk: &subscriptions{Client: nacossdk.ConnectTo(t, nacos), t: t, watches: make(map[string]*nacossdk.Watch)},
	}
	const formats = `kratos, { format: spring-cloud, service: "sc-*" }, { format: hertz, service: "hertz-*" }, { format: plain, service: "plain-*" }`
	bridge := harness.ConfiguredBridge(t, fmt.Sprintf(`owner: integration
registries:
  nacos: { nacos: { %s, listInterval: 500ms } }
  zk: { zookeeper: { servers: [%q] } }
bridges:
  - { name: nacos-to-zk, from: nacos, to: zk, formats: [%[3]s], select: { allow: [127.0.0.0/8] }, guard: { %[4]s } }
  - { name: zk-to-nacos, from: zk, to: nacos, formats: [%[3]s], select: { allow: [127.0.0.0/8] }, guard: { %[4]s } }
  - { name: kratos-to-gozero, from: zk, to: nacos, reads: [kratos], formats: [{ format: gozero, service: "zero-*" }], select: { allow: [127.0.0.0/8] }, guard: { %[4]s } }`,
		nacos.Settings(), zookeeper.Address, formats, harness.Swift))
	bridge.Start(t)
	bridge.AwaitReady(t)
	return w
}

// cell records a cell of the table: format, registry, direction and how it went.
func (w *world) cell(format, at, direction, how string) {
	w.cells = append(w.cells, fmt.Sprintf("%-12s %-10s %-22s %s", format, at, direction, how))
}

// TestFrameworks: each framework's provider knows one registry, its consumer
// the other, and neither knows of the bridge.
func TestFrameworks(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	w := newWorld(t)
	zoo, nacos := zooKratos{t, w.znodes}, nacosKratos{t, w.sdk}
	t.Run("Kratos", func(t *testing.T) {
		kratosProvider(t, "in-zk", zoo)
		kratosProvider(t, "in-nacos", nacos)
		kratosCall(t, "in-zk.grpc", "in-zk.http", nacos)
		kratosCall(t, "in-nacos", "in-nacos", zoo)
		w.called("kratos", "grpc and http by Kratos's clients")
	})
	t.Run("Hertz", func(t *testing.T) {
		hertzProvider(t, "hertz-in-zk", zooHertz{t, w.znodes})
		hertzProvider(t, "hertz-in-nacos", nacosHertz{t, w.sdk})
		hertzCall(t, "hertz-in-zk", nacosHertz{t, w.sdk}.resolver())
		hertzCall(t, "hertz-in-nacos", zooHertz{t, w.znodes}.resolver())
		w.called("hertz", "http by Hertz's client")
	})
	t.Run("Spring Cloud", func(t *testing.T) {
		w.spring(t)
		w.called("spring-cloud", "http by Spring Cloud's load-balanced client, of what its DiscoveryClient finds")
	})
	t.Run("gRPC and nacos-sdk-go", func(t *testing.T) {
		w.plain(t)
		w.called("plain", "grpc by grpc-go; Nacos by nacos-sdk-go")
	})
	t.Run("go-zero", func(t *testing.T) {
		kratosProvider(t, "zero", zoo)
		healthy(t, w.inNacos(t, "zero-zero"))
		w.cell("gozero", "nacos", "consumer of it calls", "call: grpc, to a provider of Kratos in ZooKeeper; with go-zero's own registry in integration/plugins")
		w.cell("gozero", "zookeeper", "both", "go-zero has no registry there")
	})
	w.cell("kitex", "both", "both", "with Kitex' own registries in integration/plugins")
	t.Log("format       registry   direction              how\n" + strings.Join(w.cells, "\n"))
}

// called records that a format's providers and consumers met in both directions.
func (w *world) called(format, how string) {
	w.cell(format, "zookeeper", "consumer of it calls", "call: "+how)
	w.cell(format, "zookeeper", "provider of it is called", "call: "+how)
	w.cell(format, "nacos", "consumer of it calls", "call: "+how)
	w.cell(format, "nacos", "provider of it is called", "call: "+how)
}

// kratosProvider runs an application of Kratos that serves gRPC and HTTP.
func kratosProvider(t *testing.T, name string, r kratos.Registrar) {
	t.Helper()
	web := khttp.NewServer(khttp.Address("127.0.0.1:0"))
	web.Route("/").GET("/hello", func(c khttp.Context) error { return c.JSON(http.StatusOK, map[string]string{"from": name}) })
	a := kratosapp.New(
		kratosapp.ID("k-"+name), kratosapp.Name(name), kratosapp.Version("v1"), kratosapp.Registrar(r),
		kratosapp.Server(kgrpc.NewServer(kgrpc.Address("127.0.0.1:0")), web),
	)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = a.Run() // which ends with an error where a server was stopped
	}()
	t.Cleanup(func() {
		_ = a.Stop()
		<-ended
	})
}

// kratosCall calls a service of Kratos by both of its protocols.
func kratosCall(t *testing.T, grpcName, httpName string, d kratos.Discovery) {
	t.Helper()
	kratosCallGRPC(t, grpcName, d)
	eventually(t, "Kratos calls "+httpName, func(ctx context.Context) error {
		c, err := khttp.NewClient(ctx, khttp.WithEndpoint("discovery:///"+httpName), khttp.WithDiscovery(d), khttp.WithBlock())
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		var answer map[string]string
		if err := c.Invoke(ctx, http.MethodGet, "/hello", nil, &answer); err != nil {
			return err
		}
		return harness.Same(answer["from"], strings.TrimSuffix(httpName, ".http"))
	})
}

func kratosCallGRPC(t *testing.T, name string, d kratos.Discovery) {
	t.Helper()
	eventually(t, "Kratos calls "+name, func(ctx context.Context) error {
		conn, err := kgrpc.DialInsecure(ctx, kgrpc.WithEndpoint("discovery:///"+name), kgrpc.WithDiscovery(d))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		if err == nil && answer.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			err = errors.New(answer.String())
		}
		return err
	})
}

// hertzProvider runs a server of Hertz.
func hertzProvider(t *testing.T, name string, r registry.Registry) {
	t.Helper()
	address := harness.Address(t)
	h := server.New(server.WithHostPorts(address), server.WithRegistry(r, &registry.Info{
		ServiceName: name, Addr: utils.NewNetAddr("tcp", address), Weight: 10, Tags: map[string]string{"zone": "z1"},
	}))
	h.GET("/hello", func(_ context.Context, c *app.RequestContext) { c.String(http.StatusOK, name) })
	stop, ended := make(chan struct{}), make(chan struct{})
	h.SetCustomSignalWaiter(func(failed chan error) error {
		select {
		case err := <-failed:
			return err
		case <-stop:
			return nil
		}
	})
	go func() { h.Spin(); close(ended) }() // which registers, as Run does not
	t.Cleanup(func() { close(stop); <-ended })
}

func hertzCall(t *testing.T, name string, r discovery.Resolver) {
	t.Helper()
	eventually(t, "Hertz calls "+name, func(ctx context.Context) error {
		c, err := client.NewClient()
		if err != nil {
			return err
		}
		defer c.CloseIdleConnections()
		c.Use(sd.Discovery(r))
		_, body, err := c.Get(ctx, nil, "http://"+name+"/hello", config.WithSD(true))
		if err != nil {
			return err
		}
		return harness.Same(string(body), name)
	})
}

// plain registers gRPC servers as hosts and ports and calls them.
func (w *world) plain(t *testing.T) {
	t.Helper()
	address := grpcServer(t)
	host, port, _ := net.SplitHostPort(address)
	number, _ := strconv.ParseUint(port, 10, 16)
	w.znodes.Create(t, "/plain/plain-in-zk/"+address, "")
	w.sdk.Register(t, "plain-in-nacos", model.Instance{Ip: host, Port: number, Weight: 1, Enable: true, Healthy: true, Ephemeral: true})
	healthy(t, w.inNacos(t, "plain-in-zk"))
	harness.Eventually(t, soon, "a plain service of Nacos in ZooKeeper", func() error {
		return harness.Same(w.znodes.Children(t, "/plain/plain-in-nacos"), []string{address})
	})
	healthy(t, w.znodes.Children(t, "/plain/plain-in-nacos")[0])
}

// inNacos returns the address of the one instance that nacos-sdk-go finds.
func (w *world) inNacos(t *testing.T, service string) string {
	t.Helper()
	harness.Eventually(t, soon, service+" in Nacos", func() error { return harness.Same(len(w.sdk.instances(service)), 1) })
	in := w.sdk.instances(service)[0]
	return net.JoinHostPort(in.Ip, strconv.FormatUint(in.Port, 10))
}
