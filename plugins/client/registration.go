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

// Register publishes an instance, and again whenever a connection is lost. It returns at
// once; WaitVisible reports when consumers see the instance. Interfaces registered for one
// application and address accumulate; an interface that is registered again is replaced.
// The error says what cannot be published.
func (c *Client) Register(i Instance) error {
	if err := i.check(); err != nil {
		return err
	}
	if c.backend.Publisher == nil {
		return fmt.Errorf("client: %s: %w: a provider needs an identity; set Identity of the registry's Options",
			c.backend.Kind, ErrInvalid)
	}
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	if a, err := netip.ParseAddr(i.Host); err == nil && a.IsLoopback() {
		c.o.Log.Warn("instance has a loopback address, only this machine can call it", "instance", i.id())
	}
	i.Interfaces, i.Metadata = slices.Clone(i.Interfaces), maps.Clone(i.Metadata)
	if c.backend.Holds != nil {
		if err := c.backend.Holds(i); err != nil {
			return fmt.Errorf("instance %s: %w: %w", i.id(), ErrInvalid, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range i.byInterface() {
		c.instances[one.name()] = one
	}
	c.drainDeadline = time.Time{}
	c.backend.Publisher.Set(slices.Collect(maps.Values(c.instances)))
	return nil
}

// Deregister withdraws the interfaces of instances. It then waits until consumers no longer
// see them, and once for Options.DrainDelay, so that no call is lost when they end. If ctx
// ends earlier, Deregister returns its error, and the instances are withdrawn nevertheless.
// Without a deadline of ctx it waits at most 10 s for the registry, in total over
// successive calls.
//
// Deregister does not wait for a name that the address still provides to the caller, nor if
// nothing was ever published. If the registry refuses to show the instances, it returns
// ErrDenied.
//
// A mesh offers an instance for as long as its pod is ready, even if it is withdrawn. There
// Deregister waits until the pod is no longer offered, as after Kubernetes has told it to end.
func (c *Client) Deregister(ctx context.Context, instances ...Instance) error {
	gone, left := c.withdraw(instances)
	if len(gone) == 0 || c.backend.Source == nil || !c.backend.Publisher.Wrote() {
		return nil
	}
	limited, cancel := c.withDrainDeadline(ctx)
	defer cancel()
	for _, i := range gone {
		for _, q := range c.backend.Shows(i) {
			if c.answersAt(left, i.Address(), q) {
				continue
			}
			if err := c.awaitAbsence(limited, q, i); err != nil {
				return err
			}
		}
	}
	return c.awaitDrain(ctx)
}

// defaultDrain bounds the wait of successive calls of Deregister for the registry, if their
// contexts have no deadline.
const defaultDrain = 10 * time.Second

// withdraw removes instances. It returns those that were registered, and those that remain.
func (c *Client) withdraw(instances []Instance) (gone, left []Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range instances {
		for _, one := range i.byInterface() {
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

// answersAt reports whether one of several instances answers a query at an address.
func (c *Client) answersAt(several []Instance, address string, q Query) bool {
	return slices.ContainsFunc(several, func(i Instance) bool {
		return i.Address() == address && slices.Contains(c.backend.Shows(i), q)
	})
}

// withDrainDeadline bounds a context without a deadline by the deadline that successive
// calls share.
func (c *Client) withDrainDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.After(c.drainDeadline.Add(defaultDrain)) {
		c.drainDeadline = now.Add(defaultDrain)
	}
	return context.WithDeadline(ctx, c.drainDeadline)
}

// awaitDrain waits for DrainDelay, so that consumers learn of a removal that this process
// already sees.
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
	c.drainDeadline = c.drainDeadline.Add(c.o.DrainDelay) // the delay does not count as waiting for the registry
	c.mu.Unlock()
	return nil
}

// WaitVisible waits until consumers of this client's registry see an instance. A client of
// another registry that a bridge keeps in sync reports when the instance is visible there.
// If ctx ends earlier, the error says why the instance is not visible.
func (c *Client) WaitVisible(ctx context.Context, i Instance) error {
	for _, q := range c.backend.Shows(i) {
		if err := c.await(ctx, q, i, visible); err != nil {
			return fmt.Errorf("instance %s: %w", naming.Quote(i.id()), err)
		}
	}
	return nil
}

// awaitAbsence waits until a query no longer finds an instance. It fails at once if the
// registry refuses to show it.
func (c *Client) awaitAbsence(ctx context.Context, q Query, i Instance) error {
	if err := c.await(ctx, q, i, absent); err != nil {
		return fmt.Errorf("instance %s: %w", naming.Quote(i.id()), err)
	}
	return nil
}

// presence is the awaited state of an instance's address.
type presence uint8

const (
	visible presence = iota
	absent
)

// await waits until a query finds, or no longer finds, the address of an instance.
func (c *Client) await(ctx context.Context, q Query, i Instance, want presence) error {
	w := c.Watch(q)
	defer w.Stop()
	for {
		s, err := w.Next(ctx)
		if want == visible && errors.Is(err, ErrDenied) && ctx.Err() == nil {
			continue // access may be granted before ctx ends
		}
		if want == absent && err == nil && errors.Is(s.Err, ErrDenied) {
			err = s.Err
		}
		if err != nil {
			return firstError(c.publishError(), c.whyLeftOut(q, err))
		}
		if s.Err == nil && s.shows(i) == (want == visible) {
			return nil
		}
	}
}

// whyLeftOut adds the reason why a service was left out of an answer, if it was.
func (c *Client) whyLeftOut(q Query, err error) error {
	for _, s := range c.index.find(q).services {
		if why := c.table.SkipReason(string(s.Name)); why != "" {
			return fmt.Errorf("%s: left out of %s: %s: %w", q, s.Name, why, err)
		}
	}
	if cause(err) == nil {
		return fmt.Errorf("%s: %w", q, err)
	}
	return err // already names the query
}

// publishError returns the first reason why something is not published, or nil.
func (c *Client) publishError() error {
	if c.backend.Publisher == nil {
		return nil
	}
	return caused(firstProblem(c.backend.Publisher.Problems()), ErrUnreachable)
}

// firstProblem returns the problem of the first name in order, or nil.
func firstProblem(problems map[string]error) error {
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		return problems[name]
	}
	return nil
}
