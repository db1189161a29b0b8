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

// targetPublisher publishes what a process provides through a registry.Target. It reads and
// writes only the groups of its own instances.
type targetPublisher struct {
	// Immutable once Run starts, except that openTarget sets target.
	target     registry.Target
	codec      metadata.Encoder
	open       func() (registry.Target, error) // makes target, and is retried; nil: target is set
	serve      func(context.Context) error     // keeps the connection; nil: not needed
	owner      string                          // as in registry.Stored.Owner
	shows      func(Instance) []Query          // Backend.Shows
	joinsPorts bool                            // one entry holds all instances of a process and application
	log        *slog.Logger
	observe    func(q Query, changed func()) (stop func()) // Client.observe; nil: there is no source

	wrote atomic.Bool // as Publisher.Wrote reports
	wake  chan struct{}

	mu         sync.Mutex
	desired    []Instance
	names      map[registry.Group][]string // names of the instances in a group
	problems   map[registry.Group]error
	openErr    error            // why the registry cannot be opened
	unwritable map[string]error // why an instance cannot be written completely, by its name
}

// TargetPublisher has the settings of Backend.PublishBy.
type TargetPublisher struct {
	Target registry.Target                 // nil: Open makes it
	Open   func() (registry.Target, error) // is retried until it succeeds
	Serve  func(context.Context) error     // keeps the connection while publishing; nil: not needed
	Codec  metadata.Encoder
	Owner  string // as in registry.Stored.Owner
	Log    *slog.Logger
}

// PublishBy makes a backend publish through a target.
func (b *Backend) PublishBy(_ seam.Key, o TargetPublisher) {
	p := newTargetPublisher(o.Target, o.Codec, b.Shows, o.Owner, orDiscard(o.Log))
	p.open, p.serve = o.Open, o.Serve
	b.Publisher, b.WatchWith, b.Holds = p, p.watchWith, p.holds
}

func newTargetPublisher(
	t registry.Target, codec metadata.Encoder, shows func(Instance) []Query, owner string, log *slog.Logger,
) *targetPublisher {
	return &targetPublisher{
		target: t, codec: codec, joinsPorts: joinsPortsInOneEntry(codec), shows: shows, owner: owner, log: log,
		wake: make(chan struct{}, 1), problems: make(map[registry.Group]error),
	}
}

// joinsPortsInOneEntry reports whether a format writes all ports of an instance in one entry.
func joinsPortsInOneEntry(codec metadata.Encoder) bool {
	probe := &registry.Service{Name: "probe", Application: "probe", Interfaces: []registry.Interface{{Name: "probe"}}}
	for port, protocol := range []string{"http", "grpc"} {
		probe.Endpoints = append(probe.Endpoints, registry.Endpoint{
			Host: "127.0.0.1", Port: uint16(port + 1), Protocol: protocol, Instance: "127.0.0.1:1", Health: registry.Healthy,
		})
	}
	entries, err := codec.Encode(probe)
	return err == nil && len(entries) == 1
}

// watchWith implements Backend.WatchWith.
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
	if p.openErr != nil {
		return map[string]error{"": p.openErr}
	}
	all := maps.Clone(p.unwritable)
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

// holds implements Backend.Holds.
func (p *targetPublisher) holds(i Instance) error {
	for _, one := range p.provisionsOf(i.byInterface()) {
		if entries, err := p.encode(one); len(entries) == 0 && err != nil {
			return err
		}
	}
	return nil
}

// encode returns the entries of a provision, and why a part of it has none.
func (p *targetPublisher) encode(one *provision) ([]registry.Entry, error) {
	entries, err := p.codec.Encode(one.Service)
	if leftOut, ok := errors.AsType[*registry.LeftOut](err); ok {
		err = leftOut.Reason
	}
	return entries, err
}

// The pace of reads and writes. A failed group is retried after retryMin, which doubles up to
// retryMax. Every group is read and repaired each refreshInterval.
const (
	retryMin        = 200 * time.Millisecond
	retryMax        = 10 * time.Second
	refreshInterval = time.Minute
	gatherTime      = time.Second // gathers changes of others
	callTimeout     = 15 * time.Second
	maxCalls        = 16 // at the same time
)

// Run implements Publisher. It connects when there is something to publish.
func (p *targetPublisher) Run(ctx context.Context, grace time.Duration) error {
	select {
	case <-ctx.Done():
		return nil
	case <-p.wake:
	}
	if !p.openTarget(ctx) {
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
		return err // there is nothing to withdraw
	}
	p.mu.Lock()
	p.desired = nil
	p.mu.Unlock()
	last, cancel := context.WithTimeout(base, grace)
	defer cancel()
	return firstError(err, w.withdraw(last))
}

// openTarget opens the registry. It retries until it succeeds, because what it needs may come
// later, such as a password or trusted certificates. It returns false if ctx ends earlier.
func (p *targetPublisher) openTarget(ctx context.Context) bool {
	for fails := 1; p.target == nil; fails++ {
		target, err := p.open()
		p.mu.Lock()
		p.openErr = err
		p.mu.Unlock()
		if err == nil {
			p.target = target
			break
		}
		if fails == 1 {
			p.log.Warn("registry not opened, retrying", "err", err)
		}
		if pause(ctx, retryIn(fails)); ctx.Err() != nil {
			return false
		}
	}
	return true
}

// recordUnwritable records why instances cannot be written completely, and logs new reasons.
func (p *targetPublisher) recordUnwritable(all map[string]error, names map[registry.Group][]string) {
	p.mu.Lock()
	before := p.unwritable
	p.unwritable, p.names = all, names
	p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if was := before[name]; was == nil || was.Error() != all[name].Error() {
			p.log.Warn("instance not published completely", "instance", name, "err", all[name])
		}
	}
}

// retryIn returns the wait after a number of failures in a row, at least 1.
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

// MarkOf returns the mark of the entries that a process of an identity publishes; zero without
// an identity.
func MarkOf(_ seam.Key, identity string) metadata.Mark {
	if identity == "" {
		return metadata.Mark{}
	}
	return metadata.NewMark(OwnerName(seam.Key{}, identity), identity)
}

// OwnerName returns the owner name of an identity. A bridge never has such a name, because its
// owner names contain no colon. A bridge of the same name would delete the process's entries.
func OwnerName(_ seam.Key, identity string) string { return "client:" + identity }
