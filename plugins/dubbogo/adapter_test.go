package dubbogo_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/registry"

	"github.com/xds-bridge/xds-bridge/internal/conformance/plugin"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/dubbogo"
)

// following is a directory of dubbo-go that follows an application.
type following struct {
	registry registry.Registry

	mu   sync.Mutex
	last []*common.URL
}

// Found implements plugin.Following.
func (f *following) Found() ([]plugin.Found, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []plugin.Found
	for _, u := range f.last {
		weight, err := strconv.Atoi(u.GetParam(constant.WeightKey, ""))
		if err != nil {
			return nil, err
		}
		found = append(found, plugin.Found{Address: u.Location, Weight: weight})
	}
	return found, nil
}

// Spoil implements plugin.Following.
func (f *following) Spoil() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range f.last {
		u.Location = "spoiled"
	}
	clear(f.last)
	f.last = nil
}

// Stop implements plugin.Following.
func (f *following) Stop() { f.registry.Destroy() }

// Notify implements registry.NotifyListener.
func (*following) Notify(*registry.ServiceEvent) { panic("it is notified of whole lists") }

// NotifyAll implements registry.NotifyListener.
func (f *following) NotifyAll(events []*registry.ServiceEvent, done func()) {
	defer done()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = nil
	for _, e := range events {
		f.last = append(f.last, e.Service)
	}
}

// at returns the URL of the registry of a client.
func at(c *client.Client) *common.URL {
	name, location, _ := strings.Cut(dubbogo.Use(c), "://")
	ip, port, _ := strings.Cut(location, ":")
	u := common.NewURLWithOptions(common.WithProtocol(name), common.WithLocation(location), common.WithIp(ip), common.WithPort(port))
	u.SetParam("registry", name)
	return u
}

// TestAdapter: a consumer names the application of the provider.
func TestAdapter(t *testing.T) {
	plugin.Adapters(t, plugin.Adapter{Follow: func(t testing.TB, r client.Registry, name string) plugin.Following {
		t.Helper()
		f := &following{registry: open(t, r.(*client.Client))} //nolint:forcetypeassert // it is one
		u := parsed(t, fmt.Sprintf("grpc://10.0.0.9/api.None?interface=api.None&provided-by=%s&side=consumer", name))
		if err := f.registry.LoadSubscribeInstances(u, f); err != nil {
			t.Fatal(err)
		}
		if err := f.registry.Subscribe(u, f); err != nil && !errors.Is(err, client.ErrClosed) {
			t.Fatal(err)
		}
		return f
	}})
}
