// Command greet is a service of the mesh for docker-compose.yml: a provider
// that publishes its key as dubbo-go does, a consumer that finds its providers
// with xds:/// alone, and what their containers need in addition, so that an image
// of it depends on nothing else.
//
//	greet provide -listen :20001 -istiod istiod:15010 -host greet.shop.svc.cluster.local:20001 -key providers:I::G
//	greet consume -listen :8080 zookeeper=HOST:PORT/GROUP ...
//	greet get URL...
//	greet dial HOST:PORT
//	greet certificates -istiod DIR -bridge DIR
//
// The consumer answers GET /call/NAME/TEXT. Where istiod is, the environment
// variable GRPC_XDS_BOOTSTRAP_CONFIG names.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "greet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say provide, consume, get, dial or certificates")
	}
	command, args := args[0], args[1:]
	switch command {
	case "provide":
		return provide(ctx, args)
	case "consume":
		return consume(ctx, args)
	case "get":
		return get(ctx, args)
	case "dial":
		return dial(ctx, args)
	case "certificates":
		return certificates(args)
	default:
		return fmt.Errorf("unknown command %q: use provide, consume, get, dial or certificates", command)
	}
}
