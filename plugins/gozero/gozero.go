// Package gozero is service discovery for go-zero's zrpc over the mesh, ZooKeeper
// or Nacos.
//
//	client := zrpc.MustNewClient(zrpc.RpcClientConf{Target: "xdsbridge:///greeter.rpc"}, gozero.WithRegistry(c))
//	stop, err := gozero.Publish(c, serverConf)
package gozero

import (
	"context"
	"fmt"

	"github.com/zeromicro/go-zero/core/proc"
	"github.com/zeromicro/go-zero/zrpc"
	"google.golang.org/grpc"

	format "github.com/xds-bridge/xds-bridge/metadata/gozero"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	xgrpc "github.com/xds-bridge/xds-bridge/plugins/grpc"
	"github.com/xds-bridge/xds-bridge/plugins/internal/adapter"
)

// Open is client.Open, with the format of go-zero's own registry in Nacos in place of Dubbo's where
// the URL names no format and o none.
func Open(url string, o client.Options, kinds ...client.Kind) (*client.Client, error) {
	return adapter.Open(url, o, map[string]string{"nacos": format.Kind}, kinds...)
}

// WithRegistry has a zrpc client resolve targets of the scheme xdsbridge by a
// client, which stays the caller's. What may follow xdsbridge:/// is said in
// plugins/grpc.
func WithRegistry(r client.Registry) zrpc.ClientOption {
	return zrpc.WithDialOption(grpc.WithResolvers(xgrpc.NewBuilder(r)))
}

// Publish publishes a server under the name of its configuration. It is
// withdrawn when the process is asked to end, before go-zero closes its listeners, or
// by stop, which returns once no consumer sees it any more, or after 10 s.
func Publish(r client.Registry, c zrpc.RpcServerConf) (stop func() error, err error) {
	host, port, err := client.Reachable(c.ListenOn)
	if err != nil {
		return nil, fmt.Errorf("listenOn: %w", err)
	}
	i := client.Instance{Application: c.Name, Host: host, Port: port, Protocol: "grpc"}
	if err := r.Register(i); err != nil {
		return nil, fmt.Errorf("publish %s: %w", c.Name, err)
	}
	stop = func() error { return r.Deregister(context.Background(), i) }
	proc.AddWrapUpListener(func() { _ = stop() }) // what it had no time for goes with the session
	return stop, nil
}
