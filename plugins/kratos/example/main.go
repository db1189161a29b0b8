// An application of Kratos that is found in a registry, and a client that calls
// it.
//
//	go run ./example -registry 'zookeeper://127.0.0.1:2181?identity=one' serve greeter
//	go run ./example -registry 'zookeeper://127.0.0.1:2181' call greeter
package main

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/go-kratos/kratos/v2"
	"github.com/go-kratos/kratos/v2/log"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/example"
	xkratos "github.com/xds-bridge/xds-bridge/plugins/kratos"
)

func main() { program().Main() }

func program() example.Program {
	return example.Program{Serve: serve, Dial: dial, Open: xkratos.Open, Log: xkratos.Log(log.GetLogger(), slog.LevelInfo), Describes: true}
}

func serve(ctx context.Context, c *client.Client, at example.Place) error {
	server := kgrpc.NewServer(kgrpc.Address(at.Address))
	example.RegisterGreeter(server, at)
	if at.Weight > 0 {
		at.Tags["weight"] = strconv.Itoa(at.Weight) // where Kratos has it
	}
	app := kratos.New(kratos.Name(at.Service), kratos.Server(server), kratos.Metadata(at.Tags),
		kratos.Registrar(xkratos.New(c)), kratos.RegistrarTimeout(30*time.Second))
	stop := context.AfterFunc(ctx, func() { _ = app.Stop() }) // Run returns why it could not
	defer stop()
	return app.Run()
}

func dial(c *client.Client, service string) (example.Call, error) {
	conn, err := kgrpc.DialInsecure(context.Background(),
		kgrpc.WithEndpoint("discovery:///"+service), kgrpc.WithDiscovery(xkratos.New(c)), kgrpc.WithTimeout(0))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) { return example.Greet(ctx, conn) }, nil
}
