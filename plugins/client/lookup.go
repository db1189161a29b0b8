package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Resolve returns the answer to a query as soon as it is known. If ctx ends earlier, it
// returns the error of Watch.Next. During an outage the answer is the last known one, with
// Snapshot.Err set. The query is kept up to date for Options.KeepFresh, so that repeating it
// is cheap.
func (c *Client) Resolve(ctx context.Context, q Query) (Snapshot, error) {
	c.linger(q)
	w := c.Watch(q)
	defer w.Stop()
	return w.Next(ctx)
}

// linger keeps a query up to date for Options.KeepFresh.
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

// Latest returns an endpoint of an earlier answer as it is known now, for frameworks that
// keep the first data of an address. If the endpoint is unknown now, Latest returns e
// unchanged and false.
func (c *Client) Latest(e Endpoint) (now Endpoint, ok bool) {
	now, ok = c.index.latest(e)
	if a, err := naming.ParseHostAddress(now.Service); err == nil && c.routes != nil {
		now.Router = c.routes.Get(a)
	}
	return now, ok
}

// answer returns what is known of a query whose names were passed to the source, and how it
// was found. The channel is closed when the source reports more names. Interest is asked
// before the table: what it calls reported is in the table already.
func (c *Client) answer(q Query, names []string) (s Snapshot, found finding, more <-chan struct{}) {
	known := c.backend.Interest.Answer(names...)
	c.index.drain()
	found = c.index.find(q)
	unknown := firstError(found.unknown, known.Err)
	s = Snapshot{Query: q, Err: firstError(caused(found.stale, ErrUnreachable), caused(unknown, ErrUnreadable))}
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
	if found.complete = c.isComplete(known, found); found.complete {
		c.state.record(s)
	}
	return s, found, known.More
}

// isComplete reports whether an answer is everything: the source reported all of it at least
// once, even if it cannot report now.
func (c *Client) isComplete(known registry.Answer, found finding) bool {
	if found.onlyDoubts && errors.Is(found.stale, registry.ErrLimit) {
		return false // the limit may have left something out
	}
	if c.backend.Interest != nil {
		return known.Reported
	}
	return found.synced && (found.unknown == nil || !found.onlyDoubts)
}

// readError returns why the registry cannot be read, or nil.
func (c *Client) readError() error {
	if stale := c.index.find(Query{}).stale; stale != nil {
		return caused(stale, ErrUnreachable)
	}
	return caused(c.sourceErr(), ErrUnreachable)
}

// sourceErr returns why the source cannot read the registry, or nil.
func (c *Client) sourceErr() error {
	if c.backend.Err == nil {
		return nil
	}
	return c.backend.Err()
}

// sourceNames returns the names that the source has to report for a query.
func (c *Client) sourceNames(q Query) []string {
	if c.backend.Interest == nil {
		return nil
	}
	var all []string
	for _, one := range q.alternatives() {
		if c.invalidPart(one) == nil {
			all = append(all, c.backend.Names(one)...)
		}
	}
	return all
}

// invalid returns why the registry cannot hold any answer to a query, or nil.
func (c *Client) invalid(q Query) error {
	var why error
	for _, one := range q.alternatives() {
		err := c.invalidPart(one)
		if err == nil {
			return nil
		}
		why = firstError(why, err)
	}
	return fmt.Errorf("%s: %w", q, firstError(why, errEmptyQuery))
}

// invalidPart is invalid for one alternative of a query. Invalid alternatives are not
// requested: that the registry refuses one name must not affect the others.
func (c *Client) invalidPart(one Query) error {
	if err := one.invalid(); err != nil || c.backend.Valid == nil {
		return err
	}
	for _, name := range c.backend.Names(one) {
		if err := c.backend.Valid(name); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return nil
}

// renewState confirms the answers of watched queries in the state file.
func (c *Client) renewState() {
	for _, q := range c.index.watched() {
		c.answer(q, c.sourceNames(q))
	}
}
