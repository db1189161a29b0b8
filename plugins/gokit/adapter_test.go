package gokit_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/go-kit/kit/sd"

	"github.com/xds-bridge/xds-bridge/internal/conformance/plugin"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/gokit"
)

// following reads an Instancer's events as Go kit's endpoint cache does.
type following struct {
	instancer *gokit.Instancer
	events    chan sd.Event

	mu   sync.Mutex
	last sd.Event
}

// Found implements plugin.Following.
func (f *following) Found() ([]plugin.Found, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case f.last = <-f.events:
	default:
	}
	var found []plugin.Found
	for _, address := range f.last.Instances {
		found = append(found, plugin.Found{Address: address})
	}
	return found, f.last.Err
}

// Spoil implements plugin.Following.
func (f *following) Spoil() {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Reverse(f.last.Instances)
	for n := range f.last.Instances {
		f.last.Instances[n] = "spoiled"
	}
}

// Stop implements plugin.Following.
func (f *following) Stop() {
	f.instancer.Deregister(f.events)
	f.instancer.Stop()
}

func TestAdapter(t *testing.T) {
	plugin.Adapters(t, plugin.Adapter{Follow: func(_ testing.TB, r client.Registry, name string) plugin.Following {
		f := &following{instancer: gokit.NewInstancer(r, client.Named(name)), events: make(chan sd.Event)}
		f.instancer.Register(f.events)
		return f
	}})
}
