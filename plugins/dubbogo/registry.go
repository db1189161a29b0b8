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

// node is a registry of dubbo-go, which opens one for each service and each reference. Nodes of
// the same address share a client. It implements registry.Registry.
type node struct {
	url      *common.URL
	client   *client.Client
	timeout  time.Duration // for a first answer
	provided sync.Map      // keys of the registered URLs
	watches  sync.Map      // *client.Watch by subscription
}

// subscription is a listener with the key of the URL that it subscribed to.
type subscription struct {
	key string
	to  any
}

var errNoURL = errors.New("dubbo-go passed no URL or no listener")

// GetURL implements common.Node.
func (n *node) GetURL() *common.URL { return n.url }

// IsAvailable implements common.Node.
func (n *node) IsAvailable() bool {
	s := n.client.Status()
	return s.Connected && s.Read
}

// Destroy implements common.Node. It ends everything at the registry's address: it withdraws what
// is registered, and listeners are not notified after it returns.
func (n *node) Destroy() { _ = n.client.Close() } // Close logs what it could not withdraw

// Register implements registry.Registry. Consumers are not registered. Registering a URL twice is
// an error, as in dubbo-go's own registries.
func (n *node) Register(u *common.URL) error {
	i, err := instanceOf(u)
	if err != nil || side(u) == constant.SideConsumer {
		return err
	}
	if _, registered := n.provided.Load(u.Key()); registered {
		return fmt.Errorf("%s is already registered", u.Key())
	}
	if err := n.client.Register(i); err != nil {
		return err
	}
	n.provided.Store(u.Key(), nil)
	return nil
}

// UnRegister implements registry.Registry. It returns when no consumer sees the provider any more,
// or after 10 s for successive calls together. It returns at once if the registry is unreachable.
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
		cancel() // whether consumers still see it cannot be known
	}
	if err := n.client.Deregister(ctx, i); err != nil {
		logger.Warnf("unregister %s incomplete, consumers may still call it: %v", i.Address(), err)
	}
	return nil
}

// LoadSubscribeInstances implements registry.Registry. It waits for a first answer until the
// registry's timeout. A missing answer is not an error, because dubbo-go would give up for good.
func (n *node) LoadSubscribeInstances(u *common.URL, to registry.NotifyListener) error {
	if u == nil || to == nil {
		return errNoURL
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.timeout)
	defer cancel()
	s, err := n.client.Resolve(ctx, queryOf(u))
	if err != nil {
		logger.Warnf("no provider of %s is known yet: %v", u.Service(), err)
	}
	if len(s.Endpoints) > 0 {
		n.notify(u, to, s)
	}
	return nil
}

// Subscribe implements registry.Registry. It returns at once. Providers subscribe to overrides,
// which do not exist here.
func (n *node) Subscribe(u *common.URL, to registry.NotifyListener) error {
	if u == nil || to == nil {
		return errNoURL
	}
	if side(u) == constant.SideProvider {
		return nil
	}
	if err := n.client.Status().Err; errors.Is(err, client.ErrClosed) {
		return err
	}
	w := n.client.Watch(queryOf(u))
	if _, subscribed := n.watches.LoadOrStore(subscription{u.Key(), to}, w); subscribed {
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
		return errNoURL
	}
	if w, ok := n.watches.LoadAndDelete(subscription{u.Key(), to}); ok {
		w.(*client.Watch).Stop() //nolint:forcetypeassert // nothing else is stored
	}
	return nil
}

// notify passes all endpoints of an answer to a listener. It leaves out endpoints of another
// protocol than the consumer's, because dubbo-go does not filter a whole list.
func (n *node) notify(of *common.URL, to registry.NotifyListener, s client.Snapshot) {
	var all []*registry.ServiceEvent
	for _, e := range s.Endpoints {
		if u := urlOf(n.client, e, of); u.Protocol == of.Protocol || of.Protocol == "" {
			all = append(all, &registry.ServiceEvent{Action: remoting.EventTypeUpdate, Service: u})
		}
	}
	to.NotifyAll(all, func() {})
}
