package hertz_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/cloudwego/hertz/pkg/app/client/discovery"

	"github.com/xds-bridge/xds-bridge/internal/conformance/plugin"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/hertz"
)

// following resolves repeatedly, as Hertz does.
type following struct {
	resolver *hertz.Resolver
	name     string

	mu   sync.Mutex
	last discovery.Result
}

// Found implements plugin.Following.
func (f *following) Found() ([]plugin.Found, error) {
	result, err := f.resolver.Resolve(context.Background(), f.name)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = result
	var found []plugin.Found
	for _, i := range result.Instances {
		found = append(found, plugin.Found{Address: i.Address().String(), Weight: i.Weight()})
	}
	return found, nil
}

// Spoil implements plugin.Following.
func (f *following) Spoil() {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Reverse(f.last.Instances)
	clear(f.last.Instances)
}

// Stop implements plugin.Following. Nothing runs between two calls.
func (*following) Stop() {}

func TestAdapter(t *testing.T) {
	plugin.Adapters(t, plugin.Adapter{Follow: func(_ testing.TB, r client.Registry, name string) plugin.Following {
		return &following{resolver: hertz.NewResolver(r), name: name}
	}})
}
