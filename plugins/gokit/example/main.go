// A server of Go kit that is found in a registry, and a client that calls it.
//
//	go run ./example -registry 'zookeeper://127.0.0.1:2181?identity=one' serve greeter
//	go run ./example -registry 'zookeeper://127.0.0.1:2181' call greeter
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/go-kit/kit/endpoint"
	"github.com/go-kit/kit/sd"
	"github.com/go-kit/kit/sd/lb"
	kit "github.com/go-kit/kit/transport/http"
	"github.com/go-kit/log"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/gokit"
	"github.com/xds-bridge/xds-bridge/plugins/internal/example"
)

func main() { program().Main() }

func program() example.Program {
	return example.Program{Serve: serve, Dial: dial, Open: gokit.Open, Log: gokit.Log(log.NewLogfmtLogger(log.NewSyncWriter(os.Stderr)), slog.LevelInfo)}
}

func serve(ctx context.Context, c *client.Client, at example.Place) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", at.Address)
	if err != nil {
		return err
	}
	hello := func(context.Context, any) (any, error) { return at.Answer(), nil }
	server := &http.Server{
		Handler: kit.NewServer(hello, kit.NopRequestDecoder, func(_ context.Context, w http.ResponseWriter, answer any) error {
			_, err := io.WriteString(w, answer.(string)) //nolint:forcetypeassert // hello gives no other
			return err
		}),
		ReadHeaderTimeout: time.Second,
	}
	host, port, err := client.Reachable(l.Addr().String())
	if err != nil {
		return err
	}
	registrar := gokit.NewRegistrar(c, client.Instance{Application: at.Service, Host: host, Port: port, Protocol: "http"}, nil)
	registrar.Register()
	drained := make(chan error, 1)
	go func() {
		<-ctx.Done()
		registrar.Deregister()
		drained <- server.Shutdown(context.WithoutCancel(ctx))
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-drained
}

func dial(c *client.Client, service string) (example.Call, error) {
	instancer := gokit.NewInstancer(c, client.Named(service))
	balancer := lb.NewRoundRobin(sd.NewEndpointer(instancer, endpointAt, log.NewNopLogger()))
	return func(ctx context.Context) (string, error) {
		call, err := balancer.Endpoint()
		if err != nil {
			return "", err
		}
		answer, err := call(ctx, nil)
		if err != nil {
			return "", err
		}
		return answer.(string), nil //nolint:forcetypeassert // endpointAt gives no other
	}, nil
}

// endpointAt makes the endpoint at an address.
func endpointAt(address string) (endpoint.Endpoint, io.Closer, error) {
	at := &url.URL{Scheme: "http", Host: address, Path: "/hello"}
	read := func(_ context.Context, r *http.Response) (any, error) {
		text, err := io.ReadAll(r.Body)
		return string(text), err
	}
	return kit.NewClient(http.MethodGet, at, kit.EncodeJSONRequest, read).Endpoint(), nil, nil
}
