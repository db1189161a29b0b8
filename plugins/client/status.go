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
	Read      bool  // the registry was read at least once, and what was read is current
	Err       error // why the registry is not connected or not read; ErrClosed after Close

	Instances []InstanceStatus // registered instances, each interface separately
	Queries   []QueryStatus    // current queries without a complete answer

	// LeftOut has what others publish but no answer contains, with the reason: addresses
	// that must not be called, and entries that cannot be read.
	LeftOut map[string]string

	// Local is a problem of this process: a state file that cannot be written, or a
	// callback of Follow that panicked.
	Local error
}

// InstanceStatus is the state of a registered instance.
type InstanceStatus struct {
	Instance Instance
	Err      error // why it is not published as requested, or nil
}

// QueryStatus is the state of a query without a complete answer.
type QueryStatus struct {
	Query Query
	Err   error // why the answer is unknown
}

// Problem returns the first problem of a status, or nil.
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
	partErr, instances := c.partErr, slices.SortedFunc(maps.Values(c.instances), compareInstances)
	c.mu.Unlock()
	c.handling.Lock()
	for _, err := range c.panicked {
		s.Local = err
	}
	c.handling.Unlock()
	root := caused(c.index.rootUnknown(), ErrUnreadable)
	s.Err = caused(firstError(context.Cause(c.ctx), partErr, found.stale, c.sourceErr(), root), ErrUnreachable)
	if s.Err == nil && !found.synced && c.backend.Source != nil {
		s.Err = ErrPending
	}
	s.Read = c.backend.Source == nil || found.synced && found.stale == nil && root == nil
	s.Connected = c.ctx.Err() == nil && partErr == nil &&
		!errors.Is(s.Err, ErrUnreachable) && !errors.Is(s.Err, ErrPending)
	s.Local = firstError(s.Local, c.state.failure())
	s.Instances = c.instanceStatus(instances)
	s.Queries = c.queryStatus()
	s.LeftOut = c.leftOut()
	return s
}

func (c *Client) instanceStatus(instances []Instance) []InstanceStatus {
	if c.backend.Publisher == nil {
		return nil
	}
	problems := c.backend.Publisher.Problems()
	all := make([]InstanceStatus, 0, len(instances))
	for _, i := range instances {
		all = append(all, InstanceStatus{i, caused(firstError(problems[i.name()], problems[""]), ErrUnreachable)})
	}
	return all
}

func (c *Client) queryStatus() (all []QueryStatus) {
	for _, q := range slices.SortedFunc(slices.Values(c.index.watched()), compareQueries) {
		if err := c.backend.Interest.Answer(c.sourceNames(q)...).Err; err != nil {
			all = append(all, QueryStatus{q, fmt.Errorf("%s: %w", q, caused(err, ErrUnreadable))})
		}
	}
	return all
}

// leftOut returns what was left out of the answers to watched queries. The sources of
// registries report only entries of requested names, by name and key; the source of a mesh
// reports every host.
func (c *Client) leftOut() map[string]string {
	watched := make(map[string]bool)
	for _, q := range c.index.watched() {
		for _, s := range c.index.find(q).services {
			watched[string(s.Name)] = true
		}
	}
	all := c.table.Skipped()
	maps.DeleteFunc(all, func(key, _ string) bool { return !watched[key] && !strings.Contains(key, " ") })
	return all
}
