// A server of Kratos that is found in a registry, and a client that calls it.
//
//	go run . serve 'zookeeper://127.0.0.1:2181?identity=one' 127.0.0.1:8000
//	go run . call 'zookeeper://127.0.0.1:2181'
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/go-kratos/kratos/v2"
	"github.com/go-kratos/kratos/v2/transport/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/all"
	xkratos "github.com/xds-bridge/xds-bridge/plugins/kratos"
)

func main() {
	serving := len(os.Args) == 4 && os.Args[1] == "serve"
	if !serving && (len(os.Args) != 3 || os.Args[1] != "call") {
		fmt.Fprintln(os.Stderr, "usage: serve URL HOST:PORT, or call URL")
		os.Exit(2)
	}
	c, err := xkratos.Open(os.Args[2], client.Options{Log: slog.Default()}, all.Kinds()...)
	if err != nil {
		log.Fatal(err)
	}
	if serving {
		err = serve(c, os.Args[3])
	} else {
		err = call(c)
	}
	if err = errors.Join(err, c.Close()); err != nil {
		log.Fatal(err)
	}
}

func serve(c *client.Client, address string) error {
	server := grpc.NewServer(grpc.Address(address)) // with a health service; add the one that protoc generated
	return kratos.New(kratos.Name("greeter"), kratos.Server(server),
		kratos.Registrar(xkratos.New(c)), kratos.RegistrarTimeout(10*time.Second)).Run()
}

func call(c *client.Client) error {
	conn, err := grpc.DialInsecure(context.Background(), grpc.WithEndpoint("discovery:///greeter"), grpc.WithDiscovery(xkratos.New(c)))
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	fmt.Println("greeter is", answer.GetStatus())
	return err
}
