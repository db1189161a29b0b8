package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	nacosgrpc "github.com/nacos-group/nacos-sdk-go/v2/api/grpc"
	"github.com/nacos-group/nacos-sdk-go/v2/common/remote/rpc/rpc_request"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/xds-bridge/xds-bridge/integration/harness"
)

// rawNacos is a connection to Nacos with the messages of its protocol and
// nothing else: the floor.
type rawNacos struct {
	requests nacosgrpc.RequestClient
	close    func()
	pushes   chan notice
}

// notice is what a subscriber was sent, and when.
type notice struct {
	body string
	at   time.Time
}

func dialNacos(t *testing.T, server *harness.Nacos) rawNacos {
	t.Helper()
	conn, err := grpc.NewClient(server.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	r := rawNacos{requests: nacosgrpc.NewRequestClient(conn), pushes: make(chan notice, 1<<16)}
	r.close = func() { cancel(); _ = conn.Close() }
	t.Cleanup(r.close)
	must(t, r.ask(ctx, rpc_request.NewServerCheckRequest(), nil))
	stream, err := nacosgrpc.NewBiRequestStreamClient(conn).RequestBiStream(ctx)
	must(t, err)
	setup := rpc_request.NewConnectionSetupRequest()
	setup.ClientVersion, setup.Labels = "Nacos-Go-Client:v2.3.2", map[string]string{"source": "sdk", "module": "naming"}
	p, err := payload(setup)
	must(t, err)
	must(t, stream.Send(p))
	go r.receive(stream)
	harness.Eventually(t, time.Minute, "the connection is registered", func() error { return r.ask(ctx, rpc_request.NewHealthCheckRequest(), nil) })
	return r
}

// receive confirms what the server pushes, until the connection is closed.
func (r rawNacos) receive(stream nacosgrpc.BiRequestStream_RequestBiStreamClient) {
	for {
		p, err := stream.Recv()
		if err != nil {
			return
		}
		at, body := time.Now(), string(p.GetBody().GetValue())
		var head struct {
			RequestID string `json:"requestId"`
		}
		if json.Unmarshal([]byte(body), &head) != nil {
			return
		}
		kind := p.GetMetadata().GetType()
		ack := fmt.Sprintf(`{"resultCode":200,"success":true,"requestId":%q}`, head.RequestID)
		if stream.Send(&nacosgrpc.Payload{
			Metadata: &nacosgrpc.Metadata{Type: strings.Replace(kind, "Request", "Response", 1)}, Body: &anypb.Any{Value: []byte(ack)},
		}) != nil {
			return
		}
		if kind == "NotifySubscriberRequest" {
			select {
			case r.pushes <- notice{body, at}:
			default: // nobody reads them
			}
		}
	}
}

func payload(r rpc_request.IRequest) (*nacosgrpc.Payload, error) {
	body, err := json.Marshal(r)
	return &nacosgrpc.Payload{Metadata: &nacosgrpc.Metadata{Type: r.GetRequestType(), ClientIp: "127.0.0.1"}, Body: &anypb.Any{Value: body}}, err
}

func (r rawNacos) ask(ctx context.Context, request rpc_request.IRequest, out any) error {
	p, err := payload(request)
	if err != nil {
		return err
	}
	answer, err := r.requests.Request(ctx, p)
	if err != nil {
		return err
	}
	var head struct {
		Success bool   `json:"success"`
		Message string `json:"message"`
	}
	err = json.Unmarshal(answer.GetBody().GetValue(), &head)
	if err == nil && !head.Success {
		err = fmt.Errorf("%s: %s", request.GetRequestType(), head.Message)
	}
	if err == nil && out != nil {
		err = json.Unmarshal(answer.GetBody().GetValue(), out)
	}
	return err
}

func serviceName(i int) string { return "providers:" + iface(i) + "::" }

// instances are about what the bridge writes of a service.
func instances(i, version int) []model.Instance {
	out := make([]model.Instance, perService)
	for n := range out {
		out[n] = model.Instance{
			Ip: fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, n+1), Port: 20000, Weight: 1, Enable: true, Healthy: true, Ephemeral: true, ClusterName: "DEFAULT",
			Metadata: map[string]string{
				"protocol": "tri", "path": iface(i), "interface": iface(i), "category": "providers", "side": "provider", "endPointWeight": strconv.Itoa(version),
				"meshClusterID": clusterName(i), "meshHostAddr": host(i) + ":20000", "meshLocality": "eu-1/eu-1a", "xdsb": "kijc615abbbcl",
			},
		}
	}
	return out
}

// put publishes one service.
func (r rawNacos) put(ctx context.Context, group string, i, version int) error {
	return r.ask(ctx, rpc_request.NewBatchInstanceRequest("public", serviceName(i), group, "batchRegisterInstance", instances(i, version)), nil)
}

// write publishes a whole fleet as fast as it goes: one batch for each service,
// several in flight at a time.
func (r rawNacos) write(t *testing.T, group string, services int) {
	t.Helper()
	each(t, services, func(i int) error { return r.put(t.Context(), group, i, 1) })
}

// subscribe reads a whole group and has every change of it pushed.
func (r rawNacos) subscribe(t *testing.T, group string) (instances int) {
	t.Helper()
	names := r.names(t, group)
	counts := make([]int, len(names))
	each(t, len(names), func(i int) error {
		var out struct {
			ServiceInfo model.Service `json:"serviceInfo"`
		}
		err := r.ask(t.Context(), rpc_request.NewSubscribeServiceRequest("public", names[i], group, "", true), &out)
		counts[i] = len(out.ServiceInfo.Hosts)
		return err
	})
	for _, n := range counts {
		instances += n
	}
	return instances
}

func (r rawNacos) names(t *testing.T, group string) []string {
	t.Helper()
	var out struct {
		ServiceNames []string `json:"serviceNames"`
	}
	must(t, r.ask(t.Context(), rpc_request.NewServiceListRequest("public", "", group, 1, 1_000_000, ""), &out))
	return out.ServiceNames
}

// gone waits until the server has let go of what a connection published that
// was closed, so that whoever is measured next finds it at rest.
func gone(t *testing.T, server *harness.Nacos, group string, services int) {
	t.Helper()
	r := dialNacos(t, server)
	defer r.close()
	harness.Eventually(t, 3*time.Minute, "the instances of "+group+" are gone", func() error {
		for _, i := range []int{0, services / 2, services - 1} {
			var out struct {
				ServiceInfo model.Service `json:"serviceInfo"`
			}
			if err := r.ask(t.Context(), rpc_request.NewServiceQueryRequest("public", serviceName(i), group, "", false, 0), &out); err != nil {
				return err
			}
			if len(out.ServiceInfo.Hosts) > 0 {
				return errors.New("still there")
			}
		}
		return nil
	})
}

// notified waits until a subscriber was sent something that holds all of the
// texts, and returns when.
func (r rawNacos) notified(t *testing.T, texts ...string) time.Time {
	t.Helper()
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
next:
	for {
		select {
		case p := <-r.pushes:
			for _, text := range texts {
				if !strings.Contains(p.body, text) {
					continue next
				}
			}
			return p.at
		case <-timer.C:
			t.Fatalf("nobody was notified of %q", texts)
		}
	}
}
