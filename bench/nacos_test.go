package bench_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"testing"
	"time"

	nacosgrpc "github.com/nacos-group/nacos-sdk-go/v2/api/grpc"
	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/common/remote/rpc/rpc_request"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-bridge/xds-bridge/integration/harness"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
)

// TestNacos writes a whole mesh into a real Nacos, beside bare batches and a
// loop with the SDK's client.
func TestNacos(t *testing.T) {
	server := harness.StartNacos(t, harness.NacosOptions{Version: 3})
	rawNacos(t, server).write(t, "WARM", 200)
	for _, services := range []int{1_000, 10_000} {
		t.Run(fmt.Sprintf("%d services", services), func(t *testing.T) {
			f := newFleet(t, services)
			began := time.Now()
			floor := rawNacos(t, server)
			floor.write(t, "FLOOR", services)
			batches := time.Since(began)
			floor.close()

			if services == 1_000 {
				sdk := withSDK(t, server, services)
				results.add(t, against("P02", fmt.Sprintf("initial sync into Nacos by the SDK's client, %d x %d", services, perService), sdk, batches, 0))
			}

			proxy := harness.StartProxy(t, server.GRPC)
			p := f.intoNacos(t, server, proxy)
			began = time.Now()
			p.start()
			p.settle(t, services*perService)
			results.add(t, against("P02", fmt.Sprintf("initial sync into Nacos, %d x %d", services, perService), time.Since(began), batches, 1.5))
			if services == 1_000 {
				recovery(t, p, proxy, services, batches)
			}
			p.end()
		})
	}
}

// nacosPipe is a pipe into Nacos that has not started yet.
type nacosPipe struct {
	*pipe
	start func()
}

// scope is where the codec's services lie.
type scope struct{ *dubbo.Nacos }

// Scopes implements nacos.Layout.
func (scope) Scopes() []registry.Group { return []registry.Group{{Kind: dubbo.Kind, Group: "OURS"}} }

func (f *fleet) intoNacos(t *testing.T, server *harness.Nacos, proxy *harness.Proxy) *nacosPipe {
	t.Helper()
	codec, err := dubbo.NewNacos(dubbo.Options{Group: "OURS", Mark: mark()})
	must(t, err)
	client, err := nacos.New(nacos.Options{
		Servers: []string{server.URL},
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, proxy.Address)
		},
	})
	must(t, err)
	target, err := nacos.NewTarget(client, nacos.TargetOptions{Owner: mark().Owner, Layouts: []nacos.Layout{scope{codec}}})
	must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	p := &nacosPipe{}
	p.start = func() {
		go func() {
			defer close(done)
			check(t, client.Run(ctx))
		}()
		p.pipe = f.into(t, target, codec.Encode, func() { cancel(); <-done }) //nolint:contextcheck // the pipe has a context of its own
	}
	return p
}

// recovery measures P13: everything is published again after the connection
// was cut.
func recovery(t *testing.T, p *nacosPipe, proxy *harness.Proxy, services int, floor time.Duration) {
	t.Helper()
	passed := make(chan passage, services)
	p.tap.tell(passed)
	defer p.tap.tell(nil)
	began := time.Now()
	proxy.Reset()
	var last time.Time
	for range services {
		select {
		case one := <-passed:
			last = one.done
		case <-time.After(time.Minute):
			t.Fatal("not everything was published again within a minute")
		}
	}
	results.add(t, against("P13", fmt.Sprintf("lost connection, %d instances published again", services*perService), last.Sub(began), floor, 0))
}

// rawNacosConn is a connection to Nacos with the messages of its protocol and nothing
// else: the floor.
type rawNacosConn struct {
	requests nacosgrpc.RequestClient
	close    func()
}

func rawNacos(t *testing.T, server *harness.Nacos) rawNacosConn {
	t.Helper()
	conn, err := grpc.NewClient(server.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	b := rawNacosConn{requests: nacosgrpc.NewRequestClient(conn), close: func() { _ = conn.Close() }}
	t.Cleanup(b.close)
	must(t, b.ask(t.Context(), rpc_request.NewServerCheckRequest()))
	stream, err := nacosgrpc.NewBiRequestStreamClient(conn).RequestBiStream(t.Context())
	must(t, err)
	setup := rpc_request.NewConnectionSetupRequest()
	setup.ClientVersion, setup.Labels = "Nacos-Go-Client:v2.3.2", map[string]string{"source": "sdk", "module": "naming"}
	p, err := payload(setup)
	must(t, err)
	must(t, stream.Send(p))
	harness.Eventually(t, time.Minute, "the connection is registered", func() error { return b.ask(t.Context(), rpc_request.NewHealthCheckRequest()) })
	return b
}

func payload(r rpc_request.IRequest) (*nacosgrpc.Payload, error) {
	body, err := json.Marshal(r)
	return &nacosgrpc.Payload{Metadata: &nacosgrpc.Metadata{Type: r.GetRequestType(), ClientIp: "127.0.0.1"}, Body: &anypb.Any{Value: body}}, err
}

func (b rawNacosConn) ask(ctx context.Context, r rpc_request.IRequest) error {
	p, err := payload(r)
	if err != nil {
		return err
	}
	answer, err := b.requests.Request(ctx, p)
	if err != nil {
		return err
	}
	var head struct {
		Success bool   `json:"success"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(answer.GetBody().GetValue(), &head); err != nil || !head.Success {
		return fmt.Errorf("%s: %s %w", r.GetRequestType(), head.Message, err)
	}
	return nil
}

func instances(i int) []model.Instance {
	out := make([]model.Instance, perService)
	for n := range out {
		out[n] = model.Instance{
			Ip: fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, n+1), Port: 20000, Weight: 1, Enable: true, Healthy: true, Ephemeral: true, ClusterName: "DEFAULT",
			Metadata: map[string]string{
				"protocol": "tri", "path": iface(i), "interface": iface(i), "category": "providers", "side": "provider", "endPointWeight": "1",
				"meshClusterID": clusterName(i), "meshHostAddr": host(i) + ":20000", "meshLocality": "eu-1/eu-1a", "xdsb": "kijc615abbbcl",
			},
		}
	}
	return out
}

func serviceName(i int) string { return "providers:" + iface(i) + "::" }

func (b rawNacosConn) write(t *testing.T, group string, services int) {
	t.Helper()
	each(t, services, func(i int) error {
		return b.ask(t.Context(), rpc_request.NewBatchInstanceRequest("public", serviceName(i), group, "batchRegisterInstance", instances(i)))
	})
}

// withSDK measures a loop over the SDK's own client, one service after the
// other, as a program does that knows nothing better.
func withSDK(t *testing.T, server *harness.Nacos, services int) time.Duration {
	t.Helper()
	dir := t.TempDir()
	address, err := url.Parse(server.URL)
	must(t, err)
	port, err := strconv.ParseUint(address.Port(), 10, 16)
	must(t, err)
	client, err := clients.NewNamingClient(vo.NacosClientParam{
		ClientConfig:  constant.NewClientConfig(constant.WithLogDir(dir), constant.WithCacheDir(dir), constant.WithLogLevel("error"), constant.WithNotLoadCacheAtStart(true)),
		ServerConfigs: []constant.ServerConfig{*constant.NewServerConfig("127.0.0.1", port)},
	})
	must(t, err)
	defer client.CloseClient()
	began := time.Now()
	for i := range services {
		var list []vo.RegisterInstanceParam
		for _, in := range instances(i) {
			list = append(list, vo.RegisterInstanceParam{
				Ip: in.Ip, Port: in.Port, Weight: 1, Enable: true, Healthy: true, Ephemeral: true, Metadata: in.Metadata, ServiceName: serviceName(i), GroupName: "SDK",
			})
		}
		ok, err := client.BatchRegisterInstance(vo.BatchRegisterInstanceParam{ServiceName: serviceName(i), GroupName: "SDK", Instances: list})
		if err != nil || !ok {
			t.Fatalf("%v, %v", ok, err)
		}
	}
	return time.Since(began)
}
