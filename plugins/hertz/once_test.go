package hertz_test

import (
	"context"
	"errors"
	"testing"
	"time"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/hertz"
)

// TestResolver_UniqueAddresses: otherwise one process with two interfaces would be two of three
// instances for Hertz's balancer.
func TestResolver_UniqueAddresses(t *testing.T) {
	r := clientfake.New()
	c, err := client.New(r.Backend(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	one := client.Instance{Application: "greeter", Interfaces: []client.Interface{{Name: "api.A"}, {Name: "api.B"}}, Host: "10.0.0.1", Port: 80, Protocol: "http"}
	if err := c.Register(one); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := c.WaitVisible(ctx, one); err != nil {
		t.Fatal(err)
	}
	got, err := hertz.NewResolver(c).Resolve(ctx, "greeter")
	if err != nil || len(got.Instances) != 1 {
		t.Errorf("%d instances of one address, %v", len(got.Instances), err)
	}
}

// TestResolver_UnknownName: Hertz refreshes all names in one goroutine, without a time limit.
func TestResolver_UnknownName(t *testing.T) {
	r := clientfake.New()
	r.Down(errors.New("connection refused"))
	c, err := client.New(r.Backend(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ended := make(chan error, 1)
	go func() {
		_, err := hertz.NewResolver(c).Resolve(context.Background(), "greeter")
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, client.ErrUnreachable) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for ever")
	}
}
