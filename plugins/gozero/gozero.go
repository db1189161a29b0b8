// Package gozero provides service discovery for go-zero's zrpc through the mesh, ZooKeeper or
// Nacos.
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

// Open is client.Open with the format of go-zero's own registry as the default for Nacos.
func Open(url string, o client.Options, kinds ...client.Kind) (*client.Client, error) {
	return adapter.Open(url, o, map[string]string{"nacos": format.Kind}, kinds...)
}

// WithRegistry makes a zrpc client resolve targets of the scheme xdsbridge. It does not close
// the registry's client. plugins/grpc documents what may follow xdsbridge:///.
func WithRegistry(r client.Registry) zrpc.ClientOption {
	return zrpc.WithDialOption(grpc.WithResolvers(xgrpc.NewBuilder(r)))
}

// Publish registers a server under the name of its configuration. The server is deregistered
// when the process is told to terminate, before go-zero closes its listeners, or by stop. The
// function stop returns when no consumer sees the server any more, or after 10 s.
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
	proc.AddWrapUpListener(func() { _ = stop() }) // the session's end removes what remains
	return stop, nil
}
