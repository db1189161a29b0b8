package kube

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// Options say what is read, and how.
type Options struct {
	Rules

	Config     *rest.Config // how the API server is reached, and as whom
	Namespaces []string     // none: all
	Nodes      bool         // read Nodes, which tell region and zone
	Istio      bool         // read ServiceEntries and WorkloadEntries
	MaxReceive int64        // bytes of one answer; 0: no bound
	Log        *slog.Logger // nil: nothing is logged
}

// Reader keeps a World up to date. It implements mesh.ClusterReader. Its methods
// may be called from any goroutine.
type Reader struct {
	o       Options
	wake    chan struct{}
	recheck chan struct{}

	mu    sync.Mutex // guards what follows
	world *World
	feeds []*feed
}

// New checks the options and returns a reader that does nothing before Run.
func New(o Options) (*Reader, error) {
	switch {
	case o.Config == nil:
		return nil, errors.New("kube: Config is not set")
	case o.Reading == nil:
		return nil, errors.New("kube: Reading is not set")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if len(o.Namespaces) == 0 {
		o.Namespaces = []string{""}
	}
	o.Namespaces = slices.Compact(slices.Sorted(slices.Values(o.Namespaces)))
	o.Domain = cmp.Or(o.Domain, "cluster.local")
	r := &Reader{
		o: o, wake: make(chan struct{}, 1), recheck: make(chan struct{}, 1),
		world: NewWorld(o.Rules),
	}
	for _, n := range o.Namespaces {
		r.world.Hide(n)
	}
	for _, kind := range o.resources() {
		spaces := o.Namespaces
		if kind.cluster {
			spaces = []string{""}
		}
		for _, n := range spaces {
			r.feeds = append(r.feeds, &feed{reader: r, resource: kind, namespace: n, objects: make(map[ref]struct{})})
		}
	}
	return r, nil
}

// Recheck implements mesh.ClusterReader.
func (r *Reader) Recheck() {
	select {
	case r.recheck <- struct{}{}:
	default:
	}
}

// Mapping returns a reader of the service keys alone, for endpoints that are read
// elsewhere. Of the reader either it is run, or what it returns.
func (r *Reader) Mapping() mesh.MappingReader { return keysReader{r} }

type keysReader struct{ reader *Reader }

// Run implements mesh.MappingReader.
func (k keysReader) Run(ctx context.Context, changed func(debug.Snapshot)) error {
	return k.reader.Run(ctx, func(c mesh.Changes) {
		if c.Mapping != nil {
			changed(*c.Mapping)
		}
	})
}

// Run implements mesh.ClusterReader. It may be called once.
func (r *Reader) Run(ctx context.Context, changed func(mesh.Changes)) error {
	t := &teller{reader: r, changed: changed}
	for ctx.Err() == nil {
		if err := r.connection(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

var errRechecking = errors.New("reading everything anew over a new connection")

// connection reads over one connection until ctx ends or a new one is asked for.
func (r *Reader) connection(ctx context.Context, t *teller) error {
	clients, err := r.o.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.Logger{})) // what it would print is in the status
	var following sync.WaitGroup
	defer clients.transport.CloseIdleConnections()
	defer following.Wait()
	defer cancel()
	t.connect()
	r.mu.Lock()
	for _, f := range r.feeds {
		f.client, f.listed, f.watched, f.err = clients.byVersion[f.resource.GroupVersion], false, false, nil
	}
	r.mu.Unlock()
	for _, f := range r.feeds {
		following.Go(func() { f.run(ctx) })
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.recheck:
			return nil
		case <-r.wake:
			t.tell()
		}
	}
}

// change changes the world, and has it told.
func (r *Reader) change(do func(*World)) {
	r.mu.Lock()
	do(r.world)
	r.mu.Unlock()
	r.signal()
}

func (r *Reader) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// assess looks at all feeds. It holds the lock.
func (r *Reader) assess() knowledge {
	k := knowledge{refused: make(map[string]error)}
	for _, f := range r.feeds {
		_, forbidden := errors.AsType[*Forbidden](f.err)
		switch {
		case forbidden && f.namespace != "":
			k.refused[f.namespace] = cmp.Or(k.refused[f.namespace], f.err)
		case f.err != nil:
			k.lost = cmp.Or(k.lost, f.err)
		}
	}
	if len(k.refused) == len(r.o.Namespaces) {
		k.lost = cmp.Or(k.lost, k.refused[r.o.Namespaces[0]])
	}
	k.pending = slices.ContainsFunc(r.feeds, func(f *feed) bool { return k.refused[f.namespace] == nil && (!f.listed || !f.watched) })
	if k.lost == nil && !k.pending {
		r.show(k)
	}
	return k
}

// show has the world tell of the namespaces that are known from now on.
func (r *Reader) show(k knowledge) {
	for _, n := range r.o.Namespaces {
		if k.refused[n] == nil {
			r.world.Show(n)
		}
	}
}
