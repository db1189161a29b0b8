package dubbogo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"github.com/dubbogo/gost/log/logger"

	"github.com/xds-bridge/xds-bridge/plugins/client"
)

// node is a registry as dubbo-go opens it: anew for each service and each reference,
// which share the client of its address. It implements common.Node.
type node struct {
	url     *common.URL
	client  *client.Client
	timeout time.Duration // of a first answer

	mu      sync.Mutex
	watches map[listening]*client.Watch // nil once it is destroyed
}

// listening is a listener with what it is told of.
type listening struct {
	name     string // that queryOf takes
	protocol string
	to       any
}

// settle is short, as dubbo-go serves on for a time of its own after it unregistered,
// consumer-update-wait-time.
const settle = 10 * time.Millisecond

var errNothing = errors.New("dubbo-go names nothing to register or to listen to")

func newNode(u *common.URL, open func(*common.URL) (*client.Client, error)) (*node, error) {
	timeout, err := time.ParseDuration(u.GetParam(constant.RegistryTimeoutKey, constant.DefaultRegTimeout))
	if err != nil {
		return nil, fmt.Errorf("timeout: %w", err)
	}
	c, err := open(u)
	if err != nil {
		return nil, err
	}
	return &node{url: u, client: c, timeout: timeout, watches: make(map[listening]*client.Watch)}, nil
}

// GetURL implements common.Node.
func (n *node) GetURL() *common.URL { return n.url }

// IsAvailable implements common.Node.
func (n *node) IsAvailable() bool { return n.client.Status().Available }

// Destroy implements common.Node. It ends everything at the registry's address: what is
// registered is taken back, and its listeners are told no more once it returns.
func (n *node) Destroy() {
	n.mu.Lock()
	n.watches = nil
	n.mu.Unlock()
	n.client.Close()
}

// provides reports whether an instance is registered.
func (n *node) provides(i client.Instance) bool {
	return slices.ContainsFunc(n.client.Status().Instances, func(o client.Instance) bool {
		return o.Address() == i.Address() && slices.Equal(o.Keys(), i.Keys())
	})
}

// unregister takes an instance back and waits until no consumer sees it any more, or
// for 10 s for all of them together.
func (n *node) unregister(i client.Instance) {
	if err := n.client.Deregister(context.Background(), i); err != nil {
		logger.Warnf("unregister %s: it may still be called: %v", i.Address(), err)
	}
}

// first returns the first answer, for which it waits as long as the registry's
// timeout. That there is none is no error to dubbo-go, which would give up for ever.
func (n *node) first(name string) client.Snapshot {
	ctx, cancel := context.WithTimeout(context.Background(), n.timeout)
	defer cancel()
	s, err := n.client.Resolve(ctx, queryOf(name))
	if err != nil {
		logger.Warnf("%s: nobody is known yet: %v", name, err)
	}
	return s
}

// follow tells a listener of every answer until it is unfollowed or the registry
// destroyed. It returns at once.
func (n *node) follow(l listening, tell func(client.Snapshot)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watches == nil {
		return client.ErrClosed
	}
	if n.watches[l] != nil {
		return nil
	}
	w := n.client.Watch(queryOf(l.name))
	n.watches[l] = w
	w.Follow(func(s client.Snapshot, err error) {
		if err == nil {
			tell(s)
		}
	})
	return nil
}

func (n *node) unfollow(l listening) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.watches[l]; w != nil {
		w.Stop()
		delete(n.watches, l)
	}
}
