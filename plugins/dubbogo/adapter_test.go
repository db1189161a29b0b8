package dubbogo_test

import (
	"reflect"
	"slices"
	"sync"
	"testing"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/registry"
	gxset "github.com/dubbogo/gost/container/set"
	"github.com/dubbogo/gost/gof/observer"

	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/client/clienttest"
	"github.com/xds-bridge/xds-bridge/plugins/dubbogo"
)

// following is a listener of dubbo-go to an application.
type following struct {
	discovery registry.ServiceDiscovery
	name      string

	mu   sync.Mutex
	last []registry.ServiceInstance
}

// Found implements clienttest.Following. dubbo-go is told of each interface of an
// address by itself.
func (f *following) Found() ([]clienttest.Found, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []clienttest.Found
	for _, i := range f.last {
		one := clienttest.Found{Address: i.GetAddress(), Weight: int(i.GetWeight())}
		if !slices.Contains(found, one) {
			found = append(found, one)
		}
	}
	return found, nil
}

// Spoil implements clienttest.Following.
func (f *following) Spoil() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.last)
	f.last = nil
}

// Stop implements clienttest.Following.
func (f *following) Stop() { _ = f.discovery.Destroy() }

// OnEvent implements registry.ServiceInstancesChangedListener.
func (f *following) OnEvent(e observer.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = e.(*registry.ServiceInstancesChangedEvent).Instances //nolint:forcetypeassert // of its type
	return nil
}

// GetServiceNames implements registry.ServiceInstancesChangedListener.
func (f *following) GetServiceNames() *gxset.HashSet { return gxset.NewSet(f.name) }

func (*following) AddListenerAndNotify(string, registry.NotifyListener) {}
func (*following) RemoveListener(string)                                {}
func (*following) Accept(observer.Event) bool                           { return true }
func (*following) GetPriority() int                                     { return 0 }
func (*following) GetEventType() reflect.Type {
	return reflect.TypeFor[*registry.ServiceInstancesChangedEvent]()
}

// at returns the URL of a registry of a client.
func at(c *client.Client) *common.URL {
	const name = "within"
	dubbogo.Use(name, c)
	u := common.NewURLWithOptions(common.WithProtocol(name), common.WithLocation("here"))
	u.SetParam("registry", name)
	return u
}

func TestAdapter(t *testing.T) {
	clienttest.Adapters(t, clienttest.Adapter{Follow: func(t testing.TB, r client.Registry, name string) clienttest.Following {
		t.Helper()
		d, err := extension.GetServiceDiscovery(at(r.(*client.Client))) //nolint:forcetypeassert // it is one
		if err != nil {
			t.Fatal(err)
		}
		f := &following{discovery: d, name: name}
		f.last = d.GetInstances(name)
		if err := d.AddListener(f); err != nil {
			t.Fatal(err)
		}
		return f
	}})
}
