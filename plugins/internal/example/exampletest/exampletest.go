// Package exampletest tries the examples of the plugins within one process. integration/plugins
// runs them with real registries.
package exampletest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/example"
)

// Try starts the server of an example, lets its client find and call it, and stops it. The server
// must withdraw itself.
func Try(t *testing.T, p example.Program) {
	t.Helper()
	registry := clientfake.New()
	at := example.Place{Service: "greeter", Address: freeAddress(t)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	provider := member(t, registry)
	go func() { ended <- p.Serve(serving, provider, at) }()

	await := func(what string, done func() error) {
		t.Helper()
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for err := done(); err != nil; err = done() {
			select {
			case err := <-ended:
				t.Fatalf("the server ended: %v", err)
			case <-ctx.Done():
				t.Fatalf("%s: %v", what, err)
			case <-ticker.C:
			}
		}
	}
	await("the server registers", func() error { // dubbo-go does not support two that start at the same time
		if len(provider.Status().Instances) == 0 {
			return errors.New("nothing is registered")
		}
		return nil
	})
	call, err := p.Dial(member(t, registry), at.Service)
	if err != nil {
		t.Fatal(err)
	}
	await("the client calls it", func() error {
		answer, err := call(ctx)
		if err == nil && answer != at.Answer() {
			return fmt.Errorf("answer %q, want %q", answer, at.Answer())
		}
		return err
	})
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the server ended: %v", err)
	}
	if left := provider.Status().Instances; len(left) > 0 {
		t.Errorf("still published: %v", left)
	}
}

func member(t *testing.T, r *clientfake.Registry) *client.Client {
	t.Helper()
	return clientfake.Member(t, r, client.Options{DrainDelay: time.Millisecond})
}

// freeAddress returns a loopback address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
