// Command dubbogo is an application of the real dubbo-go of the version in
// go.mod, for tests:
//
//	dubbogo provide PORT                                  answers on the port, and registers nowhere
//	dubbogo consume REGISTRY ADDRESS DISCOVERY NAMESPACE  calls all the time
//
// REGISTRY is zookeeper or nacos, DISCOVERY interface or application; NAMESPACE
// is empty for ZooKeeper, and for the one that Nacos calls public. A
// consumer prints what its load balancer chooses from whenever that changed,
// each call that failed, and ten times a second how many calls each port has
// answered so far:
//
//	seen 20001 weight=100 meshLocality=a/b/c
//	failed <error>
//	calls 20001=12 20002=30
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"dubbo.apache.org/dubbo-go/v3"
	"dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/logger"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/server"
)

const service = "org.bridge.demo.GreetService"

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "provide":
		err = provide(args[1])
	case len(args) == 5 && args[0] == "consume":
		err = consume(args[3], registry.WithRegistry(args[1]), registry.WithAddress(args[2]), registry.WithNamespace(args[4]))
	default:
		err = fmt.Errorf("what is %q?", args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dubbogo:", err)
		os.Exit(1)
	}
}

// Greeter answers with its port.
type Greeter struct{ port string }

// Greet is the one method.
func (g *Greeter) Greet(context.Context, string) (string, error) { return g.port, nil }

// Reference names the service.
func (*Greeter) Reference() string { return service }

func provide(text string) error {
	log.SetOutput(io.Discard) // a line for each call
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	s, err := server.NewServer(server.WithServerProtocol(protocol.WithTriple(), protocol.WithIp("127.0.0.1"), protocol.WithPort(port)))
	if err != nil {
		return err
	}
	if err := s.RegisterService(&Greeter{text}, server.WithInterface(service), server.WithNotRegister()); err != nil {
		return err
	}
	return s.Serve()
}

func consume(discovery string, at ...registry.Option) error {
	known := map[string]registry.Option{"interface": registry.WithRegisterInterface(), "application": registry.WithRegisterService()}
	by, ok := known[discovery]
	if !ok {
		return fmt.Errorf("discovery %q is neither interface nor application", discovery)
	}
	told := newTeller(os.Stdout)
	extension.SetLoadbalance("watching", func() loadbalance.LoadBalance { return told })
	instance, err := dubbo.NewInstance(
		dubbo.WithName("dubbogo-consumer"), dubbo.WithLogger(logger.WithLevel("error")),
		dubbo.WithRegistry(append(at, by)...))
	if err != nil {
		return err
	}
	c, err := instance.NewClient(client.WithClientNoCheck())
	if err != nil {
		return err
	}
	conn, err := c.NewService(&Greeter{}, client.WithInterface(service), client.WithLoadBalance("watching"), client.WithRequestTimeout(5*time.Second))
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	told.call(ctx, func(ctx context.Context) (string, error) { return greet(ctx, conn) })
	return nil
}

// greet calls, and calls again where dubbo-go panics: while a call looks for its
// route, an invoker that it looks at may be destroyed and have no URL any more
// (RouterChain.Route), whoever removed the provider.
func greet(ctx context.Context, conn *client.Connection) (port string, err error) {
	const tries = 3
	for range tries {
		panicked := false
		func() {
			defer func() { panicked = recover() != nil }()
			err = conn.CallUnary(ctx, []any{"bob"}, &port, "Greet")
		}()
		switch {
		case panicked:
		case err == nil && port == "":
			return "", errors.New("an empty answer")
		default:
			return port, err
		}
	}
	return "", fmt.Errorf("dubbo-go panicked %d times in a row", tries)
}
