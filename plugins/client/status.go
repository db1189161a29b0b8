package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Status is the state of a client.
type Status struct {
	Connected bool  // to the registry, now
	Read      bool  // the registry was read at least once, and what is known of it is current
	Err       error // why it is not connected, or not read; ErrClosed after Close

	Instances []InstanceStatus // that are registered, each interface by itself
	Queries   []QueryStatus    // that are asked for now and not answered as they should be

	// LeftOut is what others publish of what is asked for and no answer has, with the
	// reason: addresses that must not be called, and entries that cannot be read.
	LeftOut map[string]string

	// Local says what of this process hinders: a state file that cannot be written, or a
	// panic of a function that answers are handed to.
	Local error
}

// InstanceStatus is an instance that is registered.
type InstanceStatus struct {
	Instance Instance
	Err      error // why it is not published as it should be; nil where it is
}

// QueryStatus is what is asked for.
type QueryStatus struct {
	Query Query
	Err   error // why it is not known
}

// Problem returns the first reason why something is not as it should be; nil where
// everything is.
func (s Status) Problem() error {
	if s.Err != nil {
		return s.Err
	}
	for _, i := range s.Instances {
		if i.Err != nil {
			return i.Err
		}
	}
	for _, q := range s.Queries {
		return q.Err
	}
	return s.Local
}

// Status returns the state of the client. It never blocks.
func (c *Client) Status() Status {
	c.index.drain()
	found := c.index.find(Query{})
	var s Status
	c.mu.Lock()
	fatal, instances := c.fatal, slices.SortedFunc(maps.Values(c.instances), compareInstances)
	c.mu.Unlock()
	c.handling.Lock()
	for _, err := range c.panicked {
		s.Local = err
	}
	c.handling.Unlock()
	root := caused(c.index.rootUnknown(), ErrUnreadable)
	s.Err = caused(first(context.Cause(c.ctx), fatal, found.stale, c.sourceErr(), root), ErrUnreachable)
	if s.Err == nil && !found.synced && c.backend.Source != nil {
		s.Err = ErrPending
	}
	s.Read = c.backend.Source == nil || found.synced && found.stale == nil && root == nil
	s.Connected = c.ctx.Err() == nil && fatal == nil && !errors.Is(s.Err, ErrUnreachable) && !errors.Is(s.Err, ErrPending)
	s.Local = first(s.Local, c.state.failure())
	s.Instances = c.instanceStatus(instances)
	s.Queries = c.queryStatus()
	s.LeftOut = c.leftOut()
	return s
}

// sourceErr returns why the registry cannot be read.
func (c *Client) sourceErr() error {
	if c.backend.Err == nil {
		return nil
	}
	return c.backend.Err()
}

func (c *Client) instanceStatus(instances []Instance) []InstanceStatus {
	if c.backend.Publisher == nil {
		return nil
	}
	problems := c.backend.Publisher.Problems()
	all := make([]InstanceStatus, 0, len(instances))
	for _, i := range instances {
		all = append(all, InstanceStatus{i, caused(first(problems[i.name()], problems[""]), ErrUnreachable)})
	}
	return all
}

func (c *Client) queryStatus() (all []QueryStatus) {
	for _, q := range slices.SortedFunc(slices.Values(c.index.watched()), compareQueries) {
		if err := c.backend.Interest.Answer(c.names(q)...).Err; err != nil {
			all = append(all, QueryStatus{q, fmt.Errorf("%s: %w", q, caused(err, ErrUnreadable))})
		}
	}
	return all
}

// leftOut returns what of the answers to what is asked for was left out. The sources
// of registries report entries of what is asked for alone, by name and key; that of the
// mesh every host.
func (c *Client) leftOut() map[string]string {
	asked := make(map[string]bool)
	for _, q := range c.index.watched() {
		for _, s := range c.index.find(q).services {
			asked[string(s.Name)] = true
		}
	}
	all := c.table.Skipped()
	maps.DeleteFunc(all, func(key, _ string) bool { return !asked[key] && !strings.Contains(key, " ") })
	return all
}
