// A server of dubbo-go that is found in a registry, and a client that calls it. It
// requires no generated code.
//
//	go run ./example -registry 'zookeeper://127.0.0.1:2181?identity=one' serve greeter
//	go run ./example -registry 'zookeeper://127.0.0.1:2181' call greeter
package main

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"time"

	"dubbo.apache.org/dubbo-go/v3"
	dclient "dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/config" //nolint:staticcheck // nothing else ends dubbo-go but a signal
	"dubbo.apache.org/dubbo-go/v3/graceful_shutdown"
	"dubbo.apache.org/dubbo-go/v3/logger"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/server"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/dubbogo"
	"github.com/xds-bridge/xds-bridge/plugins/internal/example"
)

func main() { program().Main() }

func program() example.Program {
	return example.Program{Serve: serve, Dial: dial, Open: client.Open, Log: dubbogo.Log(slog.LevelInfo)}
}

// Greeter is the service.
type Greeter struct{ name, answer string }

// Hello is its one method.
func (g *Greeter) Hello(context.Context, string) (string, error) { return g.answer, nil } //nolint:unparam // dubbo-go's form

// Reference names the service.
func (g *Greeter) Reference() string { return g.name }

// instance returns dubbo-go with a client as its registry. An application of which
// the registry is named in dubbogo.yaml only imports the package:
//
//	registries: { shop: { address: "xdsbridge-zookeeper://127.0.0.1:2181", registry-type: all } }
func instance(name string, c *client.Client) (*dubbo.Instance, error) {
	return dubbo.NewInstance(dubbo.WithName(name), dubbo.WithLogger(logger.WithLevel("error")),
		dubbo.WithShutdown(graceful_shutdown.WithoutInternalSignal()),
		dubbo.WithRegistry(registry.WithAddress(dubbogo.Use(c)), registry.WithRegisterServiceAndInterface()))
}

func serve(ctx context.Context, c *client.Client, at example.Place) error {
	host, text, err := net.SplitHostPort(at.Address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	i, err := instance("server", c)
	if err != nil {
		return err
	}
	s, err := i.NewServer(server.WithServerProtocol(protocol.WithTriple(), protocol.WithIp(host), protocol.WithPort(port)))
	if err != nil {
		return err
	}
	if err := s.RegisterService(&Greeter{at.Service, at.Answer()}, server.WithInterface(at.Service)); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		config.BeforeShutdown() // as dubbo-go does by itself where it gets the signal
		return nil
	}
}

func dial(c *client.Client, service string) (example.Call, error) {
	i, err := instance("client", c)
	if err != nil {
		return nil, err
	}
	cli, err := i.NewClient(dclient.WithClientNoCheck())
	if err != nil {
		return nil, err
	}
	conn, err := cli.NewService(&Greeter{name: service}, dclient.WithInterface(service), dclient.WithRequestTimeout(5*time.Second))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) {
		var answer string
		err := conn.CallUnary(ctx, []any{"example"}, &answer, "Hello")
		return answer, err
	}, nil
}
