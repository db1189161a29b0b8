package gokit_test

import (
	"context"
	"fmt"
	"log"

	"github.com/go-kit/kit/sd"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/gokit"
)

// An instance is registered, and an instancer reports it.
func Example() {
	// Instead of gokit.Open("zookeeper://10.1.0.1:2181?identity=greeter-1", client.Options{Log: slog.Default()}, zookeeper.Kind()).
	backend := clientfake.New().Backend()
	c, err := client.New(backend, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()

	instance := client.Instance{Application: "greeter", Host: "10.0.0.1", Port: 8080, Protocol: "http"}
	registrar := gokit.NewRegistrar(c, instance, nil)
	registrar.Register()
	defer registrar.Deregister()
	if err := c.WaitVisible(context.Background(), instance); err != nil {
		log.Fatal(err)
	}

	instancer := gokit.NewInstancer(c, client.Named("greeter"))
	defer instancer.Stop()
	events := make(chan sd.Event, 1)
	instancer.Register(events) // as sd.NewEndpointer does
	event := <-events
	instancer.Deregister(events)
	fmt.Println(event.Instances, event.Err)
	// Output: [10.0.0.1:8080] <nil>
}
