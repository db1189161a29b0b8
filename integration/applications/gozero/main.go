// Command gozero is a server and a client of go-zero with go-zero's own registry,
// which is in Nacos alone, and has no weights that a consumer reads.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"
	"github.com/zeromicro/go-zero/zrpc"
	"github.com/zeromicro/zero-contrib/zrpc/registry/nacos"
	"google.golang.org/grpc"

	"github.com/xds-bridge/xds-bridge/integration/applications/program"
)

func main() { program.Program{Serve: serve, Dial: dial, List: list}.Main() }

var errZooKeeper = errors.New("go-zero has no registry in ZooKeeper")

// serve ends as go-zero does, where it is asked to by a signal.
func serve(_ context.Context, r *program.Registry, at program.Place) error {
	if !r.InNacos() {
		return errZooKeeper
	}
	conf := zrpc.RpcServerConf{ListenOn: at.Address}
	conf.Name = at.Service
	conf.Log.Encoding = "plain"
	conf.Shutdown.WrapUpTime = time.Second
	conf.Shutdown.WaitTime = 30 * time.Second
	server, err := zrpc.NewServer(conf, func(s *grpc.Server) { program.RegisterGreeter(s, at) })
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := nacos.RegisterService(nacos.NewNacosConfig(at.Service, at.Address,
		[]constant.ServerConfig{*constant.NewServerConfig(r.Host, r.Port)},
		&constant.ClientConfig{NamespaceId: r.Namespace, NotLoadCacheAtStart: true, CacheDir: "cache", LogDir: "log", LogLevel: "warn"},
		nacos.WithMetadata(at.Tags))); err != nil {
		return err
	}
	server.Start()
	return nil
}

func dial(r *program.Registry, service string) (program.Call, error) {
	if !r.InNacos() {
		return nil, errZooKeeper
	}
	// A restarted client does not receive what the cache has already.
	for name, value := range map[string]string{"NACOS_NOT_LOAD_CACHE_AT_START": "true", "NACOS_CACHE_DIR": "cache", "NACOS_LOG_DIR": "log"} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	target := fmt.Sprintf("nacos://%s:%d/%s?namespaceid=%s", r.Host, r.Port, service, r.Namespace)
	z, err := zrpc.NewClient(zrpc.RpcClientConf{Target: target, NonBlock: true, Timeout: 10_000})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) { return program.Greet(ctx, z.Conn()) }, nil
}

// list reports what the client says that go-zero's registry has.
func list(_ context.Context, r *program.Registry, service string) ([]program.Instance, error) {
	if !r.InNacos() {
		return nil, errZooKeeper
	}
	n, err := r.Nacos()
	if err != nil {
		return nil, err
	}
	found, err := n.SelectInstances(vo.SelectInstancesParam{ServiceName: service, HealthyOnly: true})
	if err != nil {
		return nil, err
	}
	var all []program.Instance
	for _, i := range found {
		all = append(all, program.Instance{Address: fmt.Sprintf("%s:%d", i.Ip, i.Port), Weight: int(i.Weight), Zone: i.Metadata["zone"]})
	}
	return all, nil
}
