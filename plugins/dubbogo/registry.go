package dubbogo

import (
	"fmt"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/remoting"

	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// interfaces is a registry by interface. It implements registry.Registry.
type interfaces struct{ *node }

// Register implements registry.Registry. Consumers are not registered. As in
// dubbo-go's own registries, it is an error to register what is.
func (r interfaces) Register(u *common.URL) error {
	i, err := instanceOf(u)
	switch {
	case err != nil || side(u) == constant.SideConsumer:
		return err
	case r.provides(i):
		return fmt.Errorf("%s is registered already", u.Key())
	}
	return r.client.Register(i) //nolint:wrapcheck // it names the instance
}

// UnRegister implements registry.Registry. It returns once no consumer sees the
// provider any more, or after 10 s for all of them together.
func (r interfaces) UnRegister(u *common.URL) error {
	i, err := instanceOf(u)
	switch {
	case err != nil || side(u) == constant.SideConsumer:
		return err
	case !r.provides(i):
		return fmt.Errorf("%s is not registered", u.Key())
	}
	r.unregister(i)
	return nil
}

// LoadSubscribeInstances implements registry.Registry.
func (r interfaces) LoadSubscribeInstances(u *common.URL, to registry.NotifyListener) error {
	if u == nil || to == nil {
		return errNothing
	}
	if s := r.first(keyIn(u).String()); len(s.Endpoints) > 0 {
		r.notify(u, to)(s)
	}
	return nil
}

// Subscribe implements registry.Registry. It returns at once. Providers ask for
// overrides, of which there are none.
func (r interfaces) Subscribe(u *common.URL, to registry.NotifyListener) error {
	if u == nil || to == nil {
		return errNothing
	}
	if side(u) == constant.SideProvider {
		return nil
	}
	return r.follow(listening{keyIn(u).String(), u.Protocol, to}, r.notify(u, to))
}

// UnSubscribe implements registry.Registry.
func (r interfaces) UnSubscribe(u *common.URL, to registry.NotifyListener) error {
	if u == nil {
		return errNothing
	}
	r.unfollow(listening{keyIn(u).String(), u.Protocol, to})
	return nil
}

// notify has a listener told of everything in an answer. What speaks another protocol
// than the consumer is left out: of a whole list, dubbo-go does not.
func (r interfaces) notify(of *common.URL, to registry.NotifyListener) func(client.Snapshot) {
	return func(s client.Snapshot) {
		var all []*registry.ServiceEvent
		for _, e := range s.Distinct() {
			if u := urlOf(r.client, e, interfaceOf(of), of.Protocol); u.Protocol == of.Protocol || of.Protocol == "" {
				all = append(all, &registry.ServiceEvent{Action: remoting.EventTypeUpdate, Service: u})
			}
		}
		to.NotifyAll(all, func() {})
	}
}
