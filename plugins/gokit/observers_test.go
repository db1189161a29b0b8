package gokit_test

import (
	"fmt"
	"sort"
	"testing"
	"time"

	"github.com/go-kit/kit/sd"

	clientfake "github.com/xds-bridge/xds-bridge/internal/fake/client"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/gokit"
)

// TestObservers_OwnSlices: Go kit's endpoint cache sorts an event's instances in place
// (sd/endpoint_cache.go updateCache). Therefore its own instancers copy each event
// (sd/internal/instance/cache.go copyEvent).
func TestObservers_OwnSlices(t *testing.T) {
	r := clientfake.New()
	providers := member(t, r)
	for n := range 2 {
		if err := providers.Register(greeter(fmt.Sprintf("10.0.0.%d", n+1))); err != nil {
			t.Fatal(err)
		}
	}
	i := gokit.NewInstancer(member(t, r), client.Named("greeter"))
	defer i.Stop()
	a, b := make(chan sd.Event, 10), make(chan sd.Event, 10)
	i.Register(a)
	await(t, a, "10.0.0.1:8080", "10.0.0.2:8080")
	i.Register(b)
	got := <-b
	sort.Strings(got.Instances)
	got.Instances[0] = "spoiled"
	c := make(chan sd.Event, 10)
	i.Register(c)
	if now := <-c; now.Instances[0] == "spoiled" {
		t.Error("observers share one slice, which Go kit sorts in place: a data race with two endpointers")
	}
}

// TestObservers_Stop: of a channel without a reader.
func TestObservers_Stop(t *testing.T) {
	r := clientfake.New()
	providers := member(t, r)
	if err := providers.Register(greeter("10.0.0.1")); err != nil {
		t.Fatal(err)
	}
	i := gokit.NewInstancer(member(t, r), client.Named("greeter"))
	first := make(chan sd.Event, 1)
	i.Register(first)
	<-first
	ch := make(chan sd.Event)
	i.Register(ch)
	ended := make(chan struct{})
	go func() { i.Deregister(ch); i.Stop(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("Deregister and Stop hang on a channel that nobody reads")
	}
}
