package gokit_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/go-kit/kit/endpoint"
	"github.com/go-kit/kit/sd"
	"github.com/go-kit/kit/sd/lb"
	"github.com/go-kit/log"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/gokit"
)

func member(t *testing.T, r *clientfake.Registry) *client.Client {
	t.Helper()
	return clientfake.Member(t, r, client.Options{})
}

func greeter(host string) client.Instance {
	return client.Instance{Application: "greeter", Host: host, Port: 8080, Protocol: "http"}
}

// TestInstancer_Changes lets Go kit's own endpointer and balancer follow changes.
func TestInstancer_Changes(t *testing.T) {
	r := clientfake.New()
	providers := member(t, r)
	one, two := gokit.NewRegistrar(providers, greeter("10.0.0.1"), nil), gokit.NewRegistrar(providers, greeter("10.0.0.2"), nil)
	one.Register()
	two.Register()
	instancer := gokit.NewInstancer(member(t, r), client.Named("greeter"))
	defer instancer.Stop()
	events := make(chan sd.Event, 10)
	instancer.Register(events)
	defer instancer.Deregister(events)
	await(t, events, "10.0.0.1:8080", "10.0.0.2:8080")
	one.Deregister()
	await(t, events, "10.0.0.2:8080")

	late := make(chan sd.Event, 10)
	instancer.Register(late)
	await(t, late, "10.0.0.2:8080")
	instancer.Deregister(late)

	factory := func(instance string) (endpoint.Endpoint, io.Closer, error) {
		return func(context.Context, any) (any, error) { return instance, nil }, nil, nil
	}
	endpointer := sd.NewEndpointer(instancer, factory, log.NewNopLogger())
	defer endpointer.Close()
	again := func(int, error) (bool, error) { return true, nil } // the endpointer learns of changes in its own goroutine
	got, err := lb.RetryWithCallback(time.Minute, lb.NewRoundRobin(endpointer), again)(t.Context(), nil)
	if err != nil || got != "10.0.0.2:8080" {
		t.Errorf("%v, %v", got, err)
	}
}

// await reads events until one has exactly these instances.
func await(t *testing.T, events <-chan sd.Event, want ...string) {
	t.Helper()
	for {
		select {
		case e := <-events:
			if e.Err == nil && slices.Equal(e.Instances, want) {
				return
			}
		case <-time.After(time.Minute):
			t.Fatalf("no event with %v", want)
		}
	}
}

func TestInstancer_Errors(t *testing.T) {
	r := clientfake.New()
	r.Down(errors.New("the registry is away"))
	instancer := gokit.NewInstancer(member(t, r), client.Named("greeter"))
	defer instancer.Stop()
	events := make(chan sd.Event, 10)
	instancer.Register(events)
	defer instancer.Deregister(events)
	select {
	case e := <-events:
		if !errors.Is(e.Err, client.ErrUnreachable) {
			t.Errorf("%+v", e)
		}
	case <-time.After(time.Minute):
		t.Fatal("observers are notified of nothing")
	}
}
