// Package gokit provides service discovery for Go kit through the mesh, ZooKeeper or Nacos: an
// sd.Instancer and an sd.Registrar.
package gokit

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"github.com/go-kit/kit/sd"

	"github.com/xds-bridge/xds-bridge/metadata/plain"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/adapter"
)

// Open is client.Open with the format plain as the default for ZooKeeper and Nacos.
func Open(url string, o client.Options, kinds ...client.Kind) (*client.Client, error) {
	return adapter.Open(url, o, map[string]string{"zookeeper": plain.Kind, "nacos": plain.Kind}, kinds...)
}

// Registrar implements sd.Registrar.
type Registrar struct {
	registry client.Registry
	instance client.Instance
	log      *slog.Logger
}

// NewRegistrar returns a registrar of one instance. It does not close the registry's client. It
// logs errors, because sd.Registrar returns none; log may be nil.
func NewRegistrar(r client.Registry, i client.Instance, log *slog.Logger) *Registrar {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Registrar{r, i, log}
}

// Register implements sd.Registrar.
func (r *Registrar) Register() {
	if err := r.registry.Register(r.instance); err != nil {
		r.log.Error("instance not registered", "instance", r.instance.Address(), "err", err)
	}
}

// Deregister implements sd.Registrar. It returns when no consumer sees the instance any more,
// or after 10 s.
func (r *Registrar) Deregister() {
	if err := r.registry.Deregister(context.Background(), r.instance); err != nil {
		r.log.Error("instance not deregistered", "instance", r.instance.Address(), "err", err)
	}
}

// Instancer implements sd.Instancer. Each observer is notified by its own goroutine, so that a
// slow observer does not delay others. An observer that has not read an event gets only the
// latest one.
type Instancer struct {
	watch   *client.Watch
	ctx     context.Context //nolint:containedctx // ends with Stop
	cancel  context.CancelFunc
	running sync.WaitGroup // goroutines that notify observers

	mu        sync.Mutex
	received  bool // last is set
	last      sd.Event
	observers map[chan<- sd.Event]*observer
}

// observer is a registered channel.
type observer struct {
	ch   chan<- sd.Event
	wake chan struct{}      // ready when there is a new event
	end  context.CancelFunc // ends its goroutine
}

// NewInstancer returns an instancer that follows the answer to a query, such as
// client.Named("greeter"). Stop ends it, and does not close the registry's client.
func NewInstancer(r client.Registry, q client.Query) *Instancer {
	ctx, cancel := context.WithCancel(context.Background())
	i := &Instancer{watch: r.Watch(q), ctx: ctx, cancel: cancel, observers: make(map[chan<- sd.Event]*observer)}
	_ = i.watch.Follow(i.answered) // the watch has no other reader
	return i
}

func (i *Instancer) answered(s client.Snapshot, err error) {
	if errors.Is(err, client.ErrClosed) {
		return
	}
	e := sd.Event{Err: err}
	if err == nil {
		e.Instances = make([]string, 0, len(s.Endpoints))
		for _, at := range s.Endpoints {
			e.Instances = append(e.Instances, at.Address())
		}
	}
	i.notify(e)
}

func (i *Instancer) notify(e sd.Event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.received, i.last = true, e
	for _, o := range i.observers {
		o.signal()
	}
}

func (o *observer) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Register implements sd.Instancer. The channel receives the last event at once. Register does
// not block, and does nothing after Stop.
func (i *Instancer) Register(ch chan<- sd.Event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.observers[ch] != nil || i.ctx.Err() != nil {
		return
	}
	ctx, end := context.WithCancel(i.ctx)
	o := &observer{ch: ch, wake: make(chan struct{}, 1), end: end}
	i.observers[ch] = o
	if i.received {
		o.signal()
	}
	i.running.Go(func() { i.observe(ctx, o) })
}

// observe sends the latest event to an observer until ctx ends. It recovers from the panic of a
// closed channel, so that other observers are not affected.
func (i *Instancer) observe(ctx context.Context, o *observer) {
	defer func() { _ = recover() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		}
		for sent := false; !sent; {
			select {
			case <-ctx.Done():
				return
			case <-o.wake: // send the newer event instead
			case o.ch <- i.event():
				sent = true
			}
		}
	}
}

// event returns the last event with its own slice of instances, because Go kit sorts it in place.
func (i *Instancer) event() sd.Event {
	i.mu.Lock()
	defer i.mu.Unlock()
	e := i.last
	e.Instances = slices.Clone(e.Instances)
	return e
}

// Deregister implements sd.Instancer. It does not block.
func (i *Instancer) Deregister(ch chan<- sd.Event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if o := i.observers[ch]; o != nil {
		o.end()
		delete(i.observers, ch)
	}
}

// Stop implements sd.Instancer.
func (i *Instancer) Stop() {
	i.mu.Lock()
	i.cancel()
	i.mu.Unlock()
	i.watch.Stop()
	i.running.Wait()
}
