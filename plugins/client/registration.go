package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
)

// Register publishes an instance from now on, and again after connections are lost.
// It returns at once; WaitVisible reports when consumers see it. What is registered
// of one application and address adds up, interface by interface; an interface
// that is registered again is replaced. The error names what cannot be published.
func (c *Client) Register(i Instance) error {
	if err := i.check(); err != nil {
		return err
	}
	if c.backend.Publisher == nil {
		return fmt.Errorf("client: %s: %w: a provider must have an identity; set Identity of its options", c.backend.Kind, ErrInvalid)
	}
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	if a, err := netip.ParseAddr(i.Host); err == nil && a.IsLoopback() {
		c.o.Log.Warn("instance at a loopback address, only this machine can call it", "instance", i.id())
	}
	i.Interfaces, i.Metadata = slices.Clone(i.Interfaces), maps.Clone(i.Metadata)
	if c.backend.Holds != nil {
		if err := c.backend.Holds(i); err != nil {
			return fmt.Errorf("instance %s: %w: %w", i.id(), ErrInvalid, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range i.each() {
		c.instances[one.name()] = one
	}
	c.drained = time.Time{}
	c.backend.Publisher.Set(slices.Collect(maps.Values(c.instances)))
	return nil
}

// Deregister takes the interfaces of instances back and waits until consumers no
// longer see them, and once for Options.DrainDelay, so that they may end without a call
// lost, or until ctx ends, whose error it returns then. Where ctx has no deadline it
// waits for the registry for 10 s, in all of several calls that follow each other. They
// are withdrawn all the same. An address that still provides a name to the caller is
// not waited for under that name, and nothing is where nothing was ever published.
// Where the registry refuses to show them it returns ErrDenied.
//
// A mesh offers an instance for as long as its pod is ready, whatever is withdrawn:
// there it waits for the pod to go, as it does when Kubernetes has asked it to end.
func (c *Client) Deregister(ctx context.Context, instances ...Instance) error {
	gone, left := c.withdraw(instances)
	if len(gone) == 0 || c.backend.Source == nil || !c.backend.Publisher.Wrote() {
		return nil
	}
	limited, cancel := c.draining(ctx)
	defer cancel()
	for _, i := range gone {
		for _, q := range c.backend.Shows(i) {
			if c.provides(left, i.Address(), q) {
				continue
			}
			if err := c.awaitAbsence(limited, q, i); err != nil {
				return err
			}
		}
	}
	return c.awaitDrain(ctx)
}

// drain is how long Deregister waits for the registry at most where nobody says how
// long, for all that is withdrawn one after the other.
const drain = 10 * time.Second

// withdraw no longer provides instances, and returns which it did, and the others.
func (c *Client) withdraw(instances []Instance) (gone, left []Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range instances {
		for _, one := range i.each() {
			if there, ok := c.instances[one.name()]; ok {
				gone = append(gone, there)
				delete(c.instances, one.name())
			}
		}
	}
	left = slices.Collect(maps.Values(c.instances))
	if len(gone) > 0 {
		c.backend.Publisher.Set(left)
	}
	return gone, left
}

// provides reports whether one of several instances answers a query at an address.
func (c *Client) provides(several []Instance, address string, q Query) bool {
	return slices.ContainsFunc(several, func(i Instance) bool {
		return i.Address() == address && slices.Contains(c.backend.Shows(i), q)
	})
}

// draining gives a context without a deadline that of what is withdrawn together.
func (c *Client) draining(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.After(c.drained.Add(drain)) {
		c.drained = now.Add(drain)
	}
	return context.WithDeadline(ctx, c.drained)
}

// awaitDrain gives consumers the time to learn what this process knows already.
func (c *Client) awaitDrain(ctx context.Context) error {
	timer := time.NewTimer(c.o.DrainDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	c.drained = c.drained.Add(c.o.DrainDelay) // it was not spent on the registry
	c.mu.Unlock()
	return nil
}

// WaitVisible waits until an instance is among those that consumers of this
// client's registry see. Asked of a client of another registry that a bridge
// keeps in sync, it reports when the other side sees it. It returns why it does
// not where ctx ends before.
func (c *Client) WaitVisible(ctx context.Context, i Instance) error {
	for _, q := range c.backend.Shows(i) {
		if err := c.await(ctx, q, i, visible); err != nil {
			return fmt.Errorf("instance %s: %w", naming.Quote(i.id()), err)
		}
	}
	return nil
}

// awaitAbsence waits until a query does not find an instance, and no longer where the
// registry refuses to show it.
func (c *Client) awaitAbsence(ctx context.Context, q Query, i Instance) error {
	if err := c.await(ctx, q, i, absent); err != nil {
		return fmt.Errorf("instance %s: %w", naming.Quote(i.id()), err)
	}
	return nil
}

// presence is what is awaited of the address of an instance.
type presence uint8

const (
	visible presence = iota
	absent
)

// await waits until a query finds the address of an instance, or does not.
func (c *Client) await(ctx context.Context, q Query, i Instance, want presence) error {
	w := c.Watch(q)
	defer w.Stop()
	for {
		s, err := w.Next(ctx)
		if want == visible && errors.Is(err, ErrDenied) && ctx.Err() == nil {
			continue // it may be reported before ctx ends
		}
		if want == absent && err == nil && errors.Is(s.Err, ErrDenied) {
			err = s.Err
		}
		if err != nil {
			return first(c.publishing(), c.whyLeftOut(q, err))
		}
		if s.Err == nil && s.shows(i) == (want == visible) {
			return nil
		}
	}
}

// whyLeftOut adds to an error what was left out of an answer.
func (c *Client) whyLeftOut(q Query, err error) error {
	for _, s := range c.index.find(q).services {
		if why := c.table.SkipReason(string(s.Name)); why != "" {
			return fmt.Errorf("%s: left out of %s: %s: %w", q, s.Name, why, err)
		}
	}
	if cause(err) == nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	return err // which names it
}

// publishing returns why something is not published.
func (c *Client) publishing() error {
	if c.backend.Publisher == nil {
		return nil
	}
	return caused(firstOf(c.backend.Publisher.Problems()), ErrUnreachable)
}

// firstOf returns the first problem by instance.
func firstOf(problems map[string]error) error {
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		return problems[name]
	}
	return nil
}
