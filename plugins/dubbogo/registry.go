package dubbogo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/remoting"
	"github.com/dubbogo/gost/log/logger"

	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// node is a registry as dubbo-go opens it: anew for each service and each reference,
// which share the client of its address. It implements registry.Registry.
type node struct {
	url      *common.URL
	client   *client.Client
	timeout  time.Duration // of a first answer
	provided sync.Map      // keys of the URLs that are registered
	watches  sync.Map      // *client.Watch by listening
}

// listening is a listener with the key of the URL that it is notified of.
type listening struct {
	key string
	to  any
}

var errNothing = errors.New("dubbo-go names nothing to register or to listen to")

// GetURL implements common.Node.
func (n *node) GetURL() *common.URL { return n.url }

// IsAvailable implements common.Node.
func (n *node) IsAvailable() bool {
	s := n.client.Status()
	return s.Connected && s.Read
}

// Destroy implements common.Node. It ends everything at the registry's address: what is
// registered is withdrawn, and its listeners are notified no more once it returns.
func (n *node) Destroy() { _ = n.client.Close() } // which logs what it could not withdraw

// Register implements registry.Registry. Consumers are not registered. As in
// dubbo-go's own registries, it is an error to register what is.
func (n *node) Register(u *common.URL) error {
	i, err := instanceOf(u)
	if err != nil || side(u) == constant.SideConsumer {
		return err
	}
	if _, registered := n.provided.Load(u.Key()); registered {
		return fmt.Errorf("%s is registered already", u.Key())
	}
	if err := n.client.Register(i); err != nil {
		return err
	}
	n.provided.Store(u.Key(), nil)
	return nil
}

// UnRegister implements registry.Registry. It returns once no consumer sees the
// provider any more, or after 10 s for all of them together, at once where the registry
// is out of reach.
func (n *node) UnRegister(u *common.URL) error {
	i, err := instanceOf(u)
	if err != nil || side(u) == constant.SideConsumer {
		return err
	}
	if _, registered := n.provided.LoadAndDelete(u.Key()); !registered {
		return fmt.Errorf("%s is not registered", u.Key())
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !n.client.Status().Connected {
		cancel() // its absence could not be detected
	}
	if err := n.client.Deregister(ctx, i); err != nil {
		logger.Warnf("unregister %s: it may still be called: %v", i.Address(), err)
	}
	return nil
}

// LoadSubscribeInstances implements registry.Registry: it waits for a first answer as
// long as the registry's timeout. That there is none is no error to dubbo-go, which
// would give up for ever.
func (n *node) LoadSubscribeInstances(u *common.URL, to registry.NotifyListener) error {
	if u == nil || to == nil {
		return errNothing
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.timeout)
	defer cancel()
	s, err := n.client.Resolve(ctx, queryOf(u))
	if err != nil {
		logger.Warnf("%s: nobody is known yet: %v", u.Service(), err)
	}
	if len(s.Endpoints) > 0 {
		n.notify(u, to, s)
	}
	return nil
}

// Subscribe implements registry.Registry. It returns at once. Providers ask for
// overrides, of which there are none.
func (n *node) Subscribe(u *common.URL, to registry.NotifyListener) error {
	if u == nil || to == nil {
		return errNothing
	}
	if side(u) == constant.SideProvider {
		return nil
	}
	if err := n.client.Status().Err; errors.Is(err, client.ErrClosed) {
		return err
	}
	w := n.client.Watch(queryOf(u))
	if _, listens := n.watches.LoadOrStore(listening{u.Key(), to}, w); listens {
		w.Stop()
		return nil
	}
	return w.Follow(func(s client.Snapshot, err error) {
		if err == nil {
			n.notify(u, to, s)
		}
	})
}

// UnSubscribe implements registry.Registry.
func (n *node) UnSubscribe(u *common.URL, to registry.NotifyListener) error {
	if u == nil {
		return errNothing
	}
	if w, ok := n.watches.LoadAndDelete(listening{u.Key(), to}); ok {
		w.(*client.Watch).Stop() //nolint:forcetypeassert // nothing else is stored
	}
	return nil
}

// notify notifies a listener of everything in an answer. What speaks another protocol
// than the consumer is left out: of a whole list, dubbo-go does not.
func (n *node) notify(of *common.URL, to registry.NotifyListener, s client.Snapshot) {
	var all []*registry.ServiceEvent
	for _, e := range s.Endpoints {
		if u := urlOf(n.client, e, of); u.Protocol == of.Protocol || of.Protocol == "" {
			all = append(all, &registry.ServiceEvent{Action: remoting.EventTypeUpdate, Service: u})
		}
	}
	to.NotifyAll(all, func() {})
}
