package dubbogo

import (
	"errors"
	"fmt"
	"sync"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/remoting"
	"github.com/dubbogo/gost/log/logger"

	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// interfaces is a registry by interface. It implements registry.Registry.
type interfaces struct {
	opened

	mu      sync.Mutex
	watches map[listening]*client.Watch
}

// listening is a listener with what it is told of.
type listening struct {
	of asked
	to registry.NotifyListener
}

var errNothing = errors.New("dubbo-go names nothing to register or to listen to")

// GetURL implements common.Node.
func (r *interfaces) GetURL() *common.URL { return r.url }

// IsAvailable implements common.Node.
func (r *interfaces) IsAvailable() bool {
	c, err := r.Client()
	return err == nil && c.Status().Available
}

// Destroy implements common.Node. It takes back what was registered and ends
// everything; the client ends with the last registry that uses it.
func (r *interfaces) Destroy() { r.Close() }

// Register implements registry.Registry. Consumers are not registered. As in
// dubbo-go's own registries, it is an error to register what is.
func (r *interfaces) Register(u *common.URL) error {
	i, err := instanceOf(u)
	switch {
	case err != nil || side(u) == constant.SideConsumer:
		return err
	case r.Provides(i):
		return fmt.Errorf("%s is registered already", u.Key())
	}
	return r.Lease.Register(i) //nolint:wrapcheck // it names the instance
}

// UnRegister implements registry.Registry. It returns once no consumer sees the
// provider any more, or after 10 s for all of them together.
func (r *interfaces) UnRegister(u *common.URL) error {
	i, err := instanceOf(u)
	switch {
	case err != nil || side(u) == constant.SideConsumer:
		return err
	case !r.Provides(i):
		return fmt.Errorf("%s is not registered", u.Key())
	}
	r.takeBack(i)
	return nil
}

func (o opened) takeBack(i client.Instance) {
	if err := o.Drain(i, drain); err != nil {
		logger.Warnf("deregister %s: it may still be called: %v", i.Address(), err)
	}
}

// LoadSubscribeInstances implements registry.Registry: it waits for a first answer
// as long as the registry's timeout. That there is none is no error, as it would
// leave the consumer without a reference for ever.
func (r *interfaces) LoadSubscribeInstances(u *common.URL, to registry.NotifyListener) error {
	if u == nil || to == nil {
		return errNothing
	}
	l := listening{queried(u), to}
	s, err := r.Resolve(l.of.query(), r.timeout)
	if err != nil {
		logger.Warnf("%s: nobody is known yet: %v", u.ServiceKey(), err)
		return nil
	}
	l.tell(s)
	return nil
}

// Subscribe implements registry.Registry. It returns at once. Providers ask for
// overrides, of which there are none.
func (r *interfaces) Subscribe(u *common.URL, to registry.NotifyListener) (err error) {
	if u == nil || to == nil {
		return errNothing
	}
	l := listening{queried(u), to}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watches[l] == nil && side(u) != constant.SideProvider {
		r.watches[l], err = r.Follow(l.of.query(), l.tell)
	}
	return err //nolint:wrapcheck // it says closed
}

// UnSubscribe implements registry.Registry. Without a listener all are meant.
func (r *interfaces) UnSubscribe(u *common.URL, to registry.NotifyListener) error {
	if u == nil {
		return errNothing
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, w := range r.watches {
		if l.of == queried(u) && (to == nil || l.to == to) {
			w.Stop()
			delete(r.watches, l)
		}
	}
	return nil
}

// tell tells of everything in an answer. It leaves out what speaks another protocol:
// of a whole list, dubbo-go does not.
func (l listening) tell(s client.Snapshot) {
	var all []*registry.ServiceEvent
	for _, e := range s.Distinct() {
		if u := urlOf(s, e, l.of); u.Protocol == l.of.protocol || l.of.protocol == "" {
			all = append(all, &registry.ServiceEvent{Action: remoting.EventTypeUpdate, Service: u})
		}
	}
	l.to.NotifyAll(all, func() {})
}
