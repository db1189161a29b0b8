// A server of dubbo-go that is found in a registry, and a client that calls it.
//
//	go run . serve 'xdsbridge-zookeeper://127.0.0.1:2181' 127.0.0.1:8000
//	go run . call 'xdsbridge-zookeeper://127.0.0.1:2181'
package main

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"os"

	"dubbo.apache.org/dubbo-go/v3" // dubbo-go/v3/imports has all of the parts that are imported as _ here
	"dubbo.apache.org/dubbo-go/v3/client"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failover"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/zoneaware"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/loadbalance/random"
	_ "dubbo.apache.org/dubbo-go/v3/filter/accesslog"
	_ "dubbo.apache.org/dubbo-go/v3/filter/echo"
	_ "dubbo.apache.org/dubbo-go/v3/filter/exec_limit"
	_ "dubbo.apache.org/dubbo-go/v3/filter/generic"
	_ "dubbo.apache.org/dubbo-go/v3/filter/graceful_shutdown"
	_ "dubbo.apache.org/dubbo-go/v3/filter/metrics"
	_ "dubbo.apache.org/dubbo-go/v3/filter/token"
	_ "dubbo.apache.org/dubbo-go/v3/filter/tps"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	_ "dubbo.apache.org/dubbo-go/v3/protocol/triple"
	_ "dubbo.apache.org/dubbo-go/v3/proxy/proxy_factory"
	"dubbo.apache.org/dubbo-go/v3/registry"
	_ "dubbo.apache.org/dubbo-go/v3/registry/directory"
	_ "dubbo.apache.org/dubbo-go/v3/registry/protocol"
	"dubbo.apache.org/dubbo-go/v3/server"

	_ "github.com/xds-bridge/xds-bridge/plugins/dubbogo"
)

func main() {
	serving := len(os.Args) == 4 && os.Args[1] == "serve"
	if !serving && (len(os.Args) != 3 || os.Args[1] != "call") {
		fmt.Fprintln(os.Stderr, "usage: serve URL HOST:PORT, or call URL")
		os.Exit(2)
	}
	app, err := dubbo.NewInstance(dubbo.WithName("greeter"), dubbo.WithRemoteMetadata(), // no metadata service
		dubbo.WithRegistry(registry.WithAddress(os.Args[2]), registry.WithRegisterInterface(), registry.WithoutUseAsMetaReport()))
	if err != nil {
		log.Fatal(err)
	}
	if serving {
		err = serve(app, os.Args[3])
	} else {
		err = call(app)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// Greeter is the service.
type Greeter struct{}

// Reference names it.
func (*Greeter) Reference() string { return "api.Greeter" }

// Hello is its one method.
func (*Greeter) Hello(context.Context, string) (string, error) { return "hello", nil }

func serve(app *dubbo.Instance, address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	s, err := app.NewServer(server.WithServerProtocol(protocol.WithTriple(), protocol.WithIp(at.Addr().String()), protocol.WithPort(int(at.Port()))))
	if err != nil {
		return err
	}
	if err := s.RegisterService(&Greeter{}, server.WithInterface("api.Greeter")); err != nil {
		return err
	}
	return s.Serve() // until SIGTERM
}

func call(app *dubbo.Instance) error {
	cli, err := app.NewClient()
	if err != nil {
		return err
	}
	conn, err := cli.NewService(&Greeter{}, client.WithInterface("api.Greeter"))
	if err != nil {
		return err
	}
	var answer string
	err = conn.CallUnary(context.Background(), []any{"example"}, &answer, "Hello")
	fmt.Println("greeter says", answer)
	return err
}
