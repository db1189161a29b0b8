// Command dubbogo is an application of the real dubbo-go of the version in
// go.mod, for tests:
//
//	dubbogo provide HOST:PORT[@WEIGHT] [PROTOCOL REGISTRY ADDRESS DISCOVERY NAMESPACE [NAME=VALUE...]]  answers there, and registers nowhere or in the registry
//	dubbogo consume PROTOCOL REGISTRY ADDRESS DISCOVERY NAMESPACE [NAME=VALUE...]         calls all the time
//
// PROTOCOL is tri or dubbo, REGISTRY zookeeper, nacos or one that an import adds,
// DISCOVERY interface or application; NAMESPACE
// is empty for ZooKeeper, and for the one that Nacos calls public; what follows
// are parameters of the registry. A provider ends as dubbo-go ends them. A
// consumer prints what its load balancer chooses from whenever that changed,
// each call that failed, and ten times a second how many calls each port has
// answered so far:
//
//	seen 20001 weight=100 meshLocality=a/b/c
//	failed <error>
//	calls 20001=12 20002=30
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"dubbo.apache.org/dubbo-go/v3"
	"dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/global"
	"dubbo.apache.org/dubbo-go/v3/logger"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/server"
)

const (
	service = "org.bridge.demo.GreetService"
	method  = "sayHello"
)

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "provide":
		err = provide(args[1], "tri", nil)
	case len(args) >= 7 && args[0] == "provide":
		err = provide(args[1], args[2], args[3:])
	case len(args) >= 6 && args[0] == "consume":
		err = consume(args[1], args[2:])
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

// SayHello is the one method.
func (g *Greeter) SayHello(_ context.Context, name string) (string, error) { //nolint:unparam // dubbo-go's form
	return "hello " + name + " from " + g.port, nil
}

// described is the service as Java has it: for triple, dubbo-go would otherwise use
// the method's name in Go.
func described(g *Greeter) *common.ServiceInfo {
	return &common.ServiceInfo{InterfaceName: service, Methods: []common.MethodInfo{{
		Name: method, Type: constant.CallUnary, ReqInitFunc: func() any { return []any{new(string)} },
		MethodFunc: func(ctx context.Context, args []any, _ any) (any, error) { return g.SayHello(ctx, args[0].(string)) },
	}}}
}

// Reference names the service.
func (*Greeter) Reference() string { return service }

// registered returns the registry that REGISTRY and what follows it name.
func registered(args []string) (dubbo.InstanceOption, error) {
	known := map[string]registry.Option{"interface": registry.WithRegisterInterface(), "application": registry.WithRegisterService()}
	by, ok := known[args[2]]
	if !ok {
		return nil, fmt.Errorf("discovery %q is neither interface nor application", args[2])
	}
	params := make(map[string]string)
	for _, argument := range args[4:] {
		name, value, _ := strings.Cut(argument, "=")
		params[name] = value
	}
	return dubbo.WithRegistry(registry.WithRegistry(args[0]), registry.WithAddress(args[1]), registry.WithNamespace(args[3]), registry.WithParams(params), by), nil
}

func provide(text, speaks string, at []string) error {
	log.SetOutput(io.Discard) // a line for each call
	address, weight, _ := strings.Cut(text, "@")
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	provider := global.DefaultProviderConfig()
	if provider.Weight, err = strconv.ParseInt(cmp.Or(weight, "0"), 10, 64); err != nil { // 0 is what dubbo-go says where none is given
		return err
	}
	o := []dubbo.InstanceOption{dubbo.WithName("dubbogo-provider"), dubbo.WithLogger(logger.WithLevel("error")), dubbo.WithMetadataServicePort(0)}
	if at != nil {
		there, err := registered(at)
		if err != nil {
			return err
		}
		o = append(o, there)
	}
	instance, err := dubbo.NewInstance(o...)
	if err != nil {
		return err
	}
	s, err := instance.NewServer(server.SetServerProvider(provider), server.WithServerProtocol(protocol.WithProtocol(speaks), protocol.WithIp(host), protocol.WithPort(port)))
	if err != nil {
		return err
	}
	g := &Greeter{text}
	if err := s.Register(g, described(g), server.WithInterface(service), server.WithSerialization(constant.Hessian2Serialization)); err != nil {
		return err
	}
	return s.Serve()
}

func consume(speaks string, at []string) error {
	there, err := registered(at)
	if err != nil {
		return err
	}
	balancer := newCaller(os.Stdout)
	extension.SetLoadbalance("watching", func() loadbalance.LoadBalance { return balancer })
	instance, err := dubbo.NewInstance(dubbo.WithName("dubbogo-consumer"), dubbo.WithLogger(logger.WithLevel("error")), there)
	if err != nil {
		return err
	}
	c, err := instance.NewClient(client.WithClientNoCheck())
	if err != nil {
		return err
	}
	conn, err := c.DialWithInfo(service, &client.ClientInfo{InterfaceName: service, MethodNames: []string{method}}, client.WithSerialization(constant.Hessian2Serialization), client.WithProtocol(speaks), client.WithLoadBalance("watching"), client.WithRequestTimeout(5*time.Second))
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	balancer.call(ctx, func(ctx context.Context) (string, error) { return greet(ctx, conn) })
	return nil
}

// greet calls, and calls again where dubbo-go panics: while a call looks for its
// route, an invoker that it looks at may be destroyed and have no URL any more
// (RouterChain.Route), whoever removed the provider.
func greet(ctx context.Context, conn *client.Connection) (port string, err error) {
	const tries = 3
	var answer string
	for range tries {
		panicked := false
		func() {
			defer func() { panicked = recover() != nil }()
			err = conn.CallUnary(ctx, []any{"bob"}, &answer, method)
		}()
		port, known := strings.CutPrefix(answer, "hello bob from ")
		switch {
		case panicked:
		case err == nil && !known:
			return "", fmt.Errorf("answer %q", answer)
		default:
			return port, err
		}
	}
	return "", fmt.Errorf("dubbo-go panicked %d times in a row", tries)
}
