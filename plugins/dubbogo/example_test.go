package dubbogo_test

import (
	"fmt"
	"log"

	"dubbo.apache.org/dubbo-go/v3"
	"dubbo.apache.org/dubbo-go/v3/logger"
	"dubbo.apache.org/dubbo-go/v3/registry"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/dubbogo"
)

// An application that uses a client as its registry. An application that names its registry in
// dubbogo.yaml, such as xdsbridge-zookeeper://10.1.0.1:2181, only imports the package.
func ExampleUse() {
	// Instead of client.Open("zookeeper://10.1.0.1:2181?identity=greeter-1", client.Options{Log: slog.Default()}, zookeeper.Kind()).
	backend := clientfake.New().Backend()
	c, err := client.New(backend, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, err = dubbo.NewInstance(dubbo.WithName("greeter"), dubbo.WithLogger(logger.WithLevel("error")),
		dubbo.WithRegistry(registry.WithAddress(dubbogo.Use(c)), registry.WithRegisterInterface()))
	fmt.Println(err)
	// Output: <nil>
}
