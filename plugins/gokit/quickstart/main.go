// A server of Go kit that is found in a registry, and a client that calls it.
//
//	go run . serve 'zookeeper://127.0.0.1:2181?identity=one' 127.0.0.1:8000
//	go run . call 'zookeeper://127.0.0.1:2181'
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-kit/kit/endpoint"
	"github.com/go-kit/kit/sd"
	"github.com/go-kit/kit/sd/lb"
	kit "github.com/go-kit/kit/transport/http"
	kitlog "github.com/go-kit/log"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/all"
	"github.com/xds-bridge/xds-bridge/plugins/gokit"
)

func main() {
	serving := len(os.Args) == 4 && os.Args[1] == "serve"
	if !serving && (len(os.Args) != 3 || os.Args[1] != "call") {
		fmt.Fprintln(os.Stderr, "usage: serve URL HOST:PORT, or call URL")
		os.Exit(2)
	}
	c, err := gokit.Open(os.Args[2], client.Options{Log: slog.Default()}, all.Kinds()...)
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
	host, port, err := client.Reachable(address)
	if err != nil {
		return err
	}
	hello := func(context.Context, any) (any, error) { return "hello", nil }
	server := &http.Server{Addr: address, Handler: kit.NewServer(hello, kit.NopRequestDecoder, kit.EncodeJSONResponse), ReadHeaderTimeout: time.Second}
	registrar := gokit.NewRegistrar(c, client.Instance{Application: "greeter", Host: host, Port: port, Protocol: "http"}, slog.Default())
	registrar.Register()
	drained := make(chan error, 1)
	go func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		<-ctx.Done()
		registrar.Deregister() // returns when consumers have left
		drained <- server.Shutdown(context.Background())
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-drained
}

func call(c *client.Client) error {
	instancer := gokit.NewInstancer(c, client.Named("greeter"))
	endpointer := sd.NewEndpointer(instancer, endpointAt, kitlog.NewNopLogger())
	again := func(int, error) (bool, error) { // while no instance is known
		time.Sleep(100 * time.Millisecond)
		return true, nil
	}
	answer, err := lb.RetryWithCallback(10*time.Second, lb.NewRoundRobin(endpointer), again)(context.Background(), nil)
	fmt.Println("greeter says", answer)
	return err
}

func endpointAt(address string) (endpoint.Endpoint, io.Closer, error) {
	read := func(_ context.Context, r *http.Response) (any, error) {
		text, err := io.ReadAll(r.Body)
		return string(text), err
	}
	return kit.NewClient(http.MethodGet, &url.URL{Scheme: "http", Host: address}, kit.EncodeJSONRequest, read).Endpoint(), nil, nil
}
