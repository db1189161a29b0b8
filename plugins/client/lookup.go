package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Resolve returns the answer to a query as soon as it is known; where ctx ends
// before, an error as Watch.Next returns it. During an outage that is the last
// known one, with Snapshot.Err set. What was asked for once is kept up to date for Options.KeepFresh, so that
// asking again costs nothing.
func (c *Client) Resolve(ctx context.Context, q Query) (Snapshot, error) {
	c.linger(q)
	w := c.Watch(q)
	defer w.Stop()
	return w.Next(ctx)
}

// linger keeps a query up to date for a time.
func (c *Client) linger(q Query) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lingering[q]; l != nil && l.Reset(c.o.KeepFresh) {
		return
	}
	w := c.Watch(q)
	if c.ctx.Err() != nil {
		w.Stop()
		return
	}
	var l *time.Timer
	l = time.AfterFunc(c.o.KeepFresh, func() {
		w.Stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.lingering[q] == l {
			delete(c.lingering, q)
		}
	})
	c.lingering[q] = l
}

// Latest returns what is known now of an endpoint of an earlier answer, for frameworks
// that keep what an address came with first; not ok, and as it was, where it is no
// longer there.
func (c *Client) Latest(e Endpoint) (now Endpoint, ok bool) {
	now, ok = c.index.latest(e)
	if a, err := naming.ParseHostAddress(now.Service); err == nil && c.routes != nil {
		now.Router = c.routes.Get(a)
	}
	return now, ok
}

// answer returns what is known of a query whose names the source was asked for,
// and how it was found. What the source reported is asked first: the table shows it
// from then on. More is closed when the source reports more.
func (c *Client) answer(q Query, names []string) (s Snapshot, found finding, more <-chan struct{}) {
	known := c.backend.Interest.Answer(names...)
	c.index.drain()
	found = c.index.find(q)
	s = Snapshot{Query: q, Err: first(caused(found.stale, ErrUnreachable), caused(first(found.hidden, known.Err), ErrUnreadable))}
	var all []Endpoint
	for _, x := range found.services {
		for _, reported := range x.Endpoints {
			if !reported.Health.Offered() {
				continue
			}
			e := endpointOf(x, reported)
			at, doubtful := found.unconfirmed[doubted{x.Name, reported.Address()}]
			if e.unconfirmed = doubtful; doubtful && (s.Since.IsZero() || at.Before(s.Since)) {
				s.Since = at
			}
			all = append(all, e)
		}
	}
	s.all, s.Endpoints = all, callable(all)
	if found.whole = c.whole(known, found); found.whole {
		c.state.keep(s)
	}
	return s, found, known.More
}

// whole reports whether what was found is everything: the source reported it at
// least once, whether it can now or not.
func (c *Client) whole(known registry.Answer, found finding) bool {
	if found.doubted && errors.Is(found.stale, registry.ErrLimit) {
		return false // it may be what does not fit
	}
	if c.backend.Interest != nil {
		return known.Reported
	}
	return found.synced && (found.hidden == nil || !found.doubted)
}

// why says why the registry cannot be read; nil where it can.
func (c *Client) why() error {
	if stale := c.index.find(Query{}).stale; stale != nil {
		return caused(stale, ErrUnreachable)
	}
	if c.backend.Err == nil {
		return nil
	}
	return caused(c.backend.Err(), ErrUnreachable)
}

// names returns what the source has to report for a query.
func (c *Client) names(q Query) []string {
	if c.backend.Interest == nil {
		return nil
	}
	var all []string
	for _, one := range q.each() {
		if c.invalidPart(one) == nil {
			all = append(all, c.backend.Names(one)...)
		}
	}
	return all
}

// invalid returns why the registry can hold nothing that answers a query, nil where it
// can hold something.
func (c *Client) invalid(q Query) error {
	var why error
	for _, one := range q.each() {
		err := c.invalidPart(one)
		if err == nil {
			return nil
		}
		why = first(why, err)
	}
	return fmt.Errorf("%s: %w", q, first(why, errNothing))
}

// invalidPart is invalid for one of several queries. It is not asked for, so that a
// registry that refuses its name says nothing of others.
func (c *Client) invalidPart(one Query) error {
	if err := one.problem(); err != nil || c.backend.Valid == nil {
		return err
	}
	for _, name := range c.backend.Names(one) {
		if err := c.backend.Valid(name); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return nil
}

// confirm has the state know that what is watched is still as it says.
func (c *Client) confirm() {
	for _, q := range c.index.watched() {
		c.answer(q, c.names(q))
	}
}
