package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/plugins/internal/seam"
	"github.com/xds-bridge/xds-bridge/registry"
)

// targetPublisher keeps what a process provides in a registry that it writes to
// itself. It looks at the groups of its own instances alone.
type targetPublisher struct {
	target registry.Target
	codec  metadata.Encoder
	open   func() (registry.Target, error) // makes the target, asked until it does; nil: it is there
	serve  func(context.Context) error     // keeps the connection; nil: nothing has to
	owner  string                          // as registry.Stored.Owner has it
	shows  func(Instance) []Query          // as Backend.Shows has it
	joined bool                            // one entry holds what one process provides of an application
	wrote  atomic.Bool                     // as Publisher.Wrote has it
	log    *slog.Logger

	wake    chan struct{}
	observe func(q Query, changed func()) (stop func()) // as Client.observe; nil: others cannot be observed

	mu       sync.Mutex
	desired  []Instance
	names    map[registry.Group][]string // of the instances that are in a group
	problems map[registry.Group]error
	closed   error            // why the registry cannot be opened
	refused  map[string]error // why an instance cannot be written, or not all of it, by its name
}

// TargetPublisher is what publishes by a registry.Target.
type TargetPublisher struct {
	Target registry.Target                 // nil: Open makes it
	Open   func() (registry.Target, error) // is asked until it does
	Serve  func(context.Context) error     // keeps the connection while it publishes; nil: nothing has to
	Codec  metadata.Encoder
	Owner  string // as registry.Stored.Owner has it
	Log    *slog.Logger
}

// PublishBy makes a backend publish by a target.
func (b *Backend) PublishBy(_ seam.Key, o TargetPublisher) {
	p := newTargetPublisher(o.Target, o.Codec, b.Shows, o.Owner, orDiscard(o.Log))
	p.open, p.serve = o.Open, o.Serve
	b.Publisher, b.WatchWith, b.Holds = p, p.watchWith, p.holds
}

func newTargetPublisher(
	t registry.Target, codec metadata.Encoder, shows func(Instance) []Query, owner string, log *slog.Logger,
) *targetPublisher {
	return &targetPublisher{
		target: t, codec: codec, joined: joins(codec), shows: shows, owner: owner, log: log, wake: make(chan struct{}, 1),
		problems: make(map[registry.Group]error),
	}
}

// joins reports whether a format holds all ports of an instance in one entry.
func joins(codec metadata.Encoder) bool {
	probe := &registry.Service{Name: "probe", Application: "probe", Interfaces: []registry.Interface{{Name: "probe"}}}
	for port, protocol := range []string{"http", "grpc"} {
		probe.Endpoints = append(probe.Endpoints, registry.Endpoint{
			Host: "127.0.0.1", Port: uint16(port + 1), Protocol: protocol, Instance: "127.0.0.1:1", Health: registry.Healthy,
		})
	}
	entries, err := codec.Encode(probe)
	return err == nil && len(entries) == 1
}

// watchWith is Backend.WatchWith.
func (p *targetPublisher) watchWith(c *Client) { p.observe = c.observe }

// Set implements Publisher.
func (p *targetPublisher) Set(instances []Instance) {
	p.mu.Lock()
	p.desired = slices.Clone(instances)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Wrote implements Publisher.
func (p *targetPublisher) Wrote() bool { return p.wrote.Load() }

// Problems implements Publisher.
func (p *targetPublisher) Problems() map[string]error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return map[string]error{"": p.closed}
	}
	all := maps.Clone(p.refused)
	if all == nil {
		all = make(map[string]error)
	}
	for g, err := range p.problems {
		err = fmt.Errorf("publish to %s: %w", g, err)
		if len(p.names[g]) == 0 {
			all["withdrawn from "+g.String()] = err
		}
		for _, name := range p.names[g] {
			all[name] = err
		}
	}
	return all
}

// holds returns why nothing of an instance can be written.
func (p *targetPublisher) holds(i Instance) error {
	for _, one := range p.provisionsOf(i.each()) {
		if entries, err := p.encode(one); len(entries) == 0 && err != nil {
			return err
		}
	}
	return nil
}

// encode returns the entries of a provision, and why not all of it has some.
func (p *targetPublisher) encode(one *provision) ([]registry.Entry, error) {
	entries, err := p.codec.Encode(one.Service)
	if left, ok := errors.AsType[*registry.LeftOut](err); ok {
		err = left.Reason
	}
	return entries, err
}

// The pace of writing: failed groups are tried again after retryMin, doubled up
// to retryMax, and everything is read and repaired each refresh.
const (
	retryMin = 200 * time.Millisecond
	retryMax = 10 * time.Second
	refresh  = time.Minute
	gather   = time.Second // changes of others
	callTime = 15 * time.Second
	atATime  = 16 // calls
)

// Run implements Publisher. It connects once there is something to publish.
func (p *targetPublisher) Run(ctx context.Context, grace time.Duration) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.wake:
	}
	if !p.opened(ctx) {
		return nil
	}
	base := context.WithoutCancel(ctx)
	serving, stop := context.WithCancel(base)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	ended := make(chan error, 1)
	if p.serve != nil {
		running.Go(func() { ended <- p.serve(serving) })
	}
	w := newPublication(p)
	err := w.follow(ctx, ended)
	for _, o := range w.observed {
		o.stop()
	}
	if !p.Wrote() {
		w.await()
		return err // nothing of this process is there
	}
	p.mu.Lock()
	p.desired = nil
	p.mu.Unlock()
	last, cancel := context.WithTimeout(base, grace)
	defer cancel()
	return first(err, w.withdraw(last))
}

// opened opens the registry, and tries on until it is open or ctx ends: what it
// depends on may come later, such as a password or the certificates that are trusted.
func (p *targetPublisher) opened(ctx context.Context) bool {
	for fails := 1; p.target == nil; fails++ {
		target, err := p.open()
		p.mu.Lock()
		p.closed = err
		p.mu.Unlock()
		if err == nil {
			p.target = target
			break
		}
		if fails == 1 {
			p.log.Warn("nothing is published, trying on", "err", err)
		}
		if pause(ctx, retryIn(fails)); ctx.Err() != nil {
			return false
		}
	}
	return true
}

// refuse records why instances cannot be written, or not all of them.
func (p *targetPublisher) refuse(all map[string]error, names map[registry.Group][]string) {
	p.mu.Lock()
	before := p.refused
	p.refused, p.names = all, names
	p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if was := before[name]; was == nil || was.Error() != all[name].Error() {
			p.log.Warn("not published, or in part", "instance", name, "err", all[name])
		}
	}
}

// retryIn returns the wait after so many failures in a row, from 1.
func retryIn(failures int) time.Duration {
	return registry.Backoff{Min: retryMin, Max: retryMax}.After(failures)
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// MarkOf returns the mark of what a process of an identity provides; zero for none.
func MarkOf(_ seam.Key, identity string) metadata.Mark {
	if identity == "" {
		return metadata.Mark{}
	}
	return metadata.NewMark(OwnerName(seam.Key{}, identity), identity)
}

// OwnerName returns the owner that an identity denotes. It is none that a
// bridge may have, because no name of an owner holds a colon: a bridge would
// delete as its own what is provided under its name.
func OwnerName(_ seam.Key, identity string) string { return "client:" + identity }
