package kratos_test

import (
	"context"
	"fmt"
	"io"
	stdlog "log"

	"github.com/go-kratos/kratos/v2"
	"github.com/go-kratos/kratos/v2/log"
	"github.com/go-kratos/kratos/v2/transport/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	xkratos "github.com/xds-bridge/xds-bridge/plugins/kratos"
)

// An application is found by its name.
func Example() {
	// Instead of xkratos.Open("zookeeper://10.1.0.1:2181?identity=greeter-1", client.Options{Log: slog.Default()}, zookeeper.Kind()).
	backend := clientfake.New().Backend()
	c, err := client.New(backend, client.Options{})
	if err != nil {
		stdlog.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	registry := xkratos.New(c)

	started, ended := make(chan struct{}), make(chan error, 1)
	app := kratos.New(kratos.Name("greeter"), kratos.Logger(log.NewStdLogger(io.Discard)), kratos.Server(grpc.NewServer(grpc.Address("127.0.0.1:0"))),
		kratos.Registrar(registry), kratos.AfterStart(func(context.Context) error { close(started); return nil }))
	go func() { ended <- app.Run() }()
	<-started

	ctx := context.Background()
	conn, err := grpc.DialInsecure(ctx, grpc.WithEndpoint("discovery:///greeter"), grpc.WithDiscovery(registry), grpc.WithPrintDiscoveryDebugLog(false))
	if err != nil {
		stdlog.Fatal(err)
	}
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	fmt.Println(answer.GetStatus(), err)

	_ = conn.Close()
	_ = app.Stop() // Run returns why it could not
	fmt.Println(<-ended)
	// Output:
	// SERVING <nil>
	// <nil>
}
