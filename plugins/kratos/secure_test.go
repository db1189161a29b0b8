package kratos_test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	kratos "github.com/go-kratos/kratos/v2"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
)

// TestRegistrar_SecureScheme: Kratos 2.8 registers a server with TLS as grpcs://, and its resolver
// accepts only this scheme for a client with TLS.
func TestRegistrar_SecureScheme(t *testing.T) {
	r := clientfake.New()
	server := kgrpc.NewServer(kgrpc.Address("127.0.0.1:0"), kgrpc.TLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}))
	app := kratos.New(kratos.Name("greeter"), kratos.Server(server), kratos.Registrar(member(t, r)))
	ended := make(chan error, 1)
	go func() { ended <- app.Run() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	w, err := member(t, r).Watch(ctx, "greeter")
	if err != nil {
		t.Fatal(err)
	}
	found, err := w.Next()
	if err != nil {
		t.Fatal(err)
	}
	at, err := server.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	if got := found[0].Endpoints[0]; got != at.String() {
		t.Errorf("registered %s, found %s", at, got)
	}
	if err := app.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
