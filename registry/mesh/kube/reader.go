package kube

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// Options tell what a Reader reads, and how.
type Options struct {
	Rules

	// Config has the address of the API server and the credentials. Its Wrap should be
	// kubelist.Bound.
	Config *rest.Config

	Namespaces []string     // empty: all
	Nodes      bool         // read Nodes, which have region and zone
	Istio      bool         // read ServiceEntries and WorkloadEntries
	Log        *slog.Logger // nil: nothing is logged
}

// Reader keeps a Model in sync with the API and reports its changes. It implements
// mesh.ClusterReader. Its methods may be called from any goroutine.
type Reader struct {
	// Immutable.
	o         Options
	informers []*informer
	wake      chan struct{} // the model or an informer's status changed
	recheck   chan struct{} // Recheck was called

	// Guarded by mu, as are the fields of informers.
	mu    sync.Mutex
	model *Model
}

// New checks the options and returns a reader that does nothing before Run.
func New(o Options) (*Reader, error) {
	switch {
	case o.Config == nil:
		return nil, errors.New("kube: Config is not set")
	case o.Decoder == nil:
		return nil, errors.New("kube: Decoder is not set")
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
		model: NewModel(o.Rules),
	}
	for _, n := range o.Namespaces {
		r.model.Hide(n)
	}
	for _, kind := range o.resources() {
		namespaces := o.Namespaces
		if kind.isClusterScoped {
			namespaces = []string{""}
		}
		for _, n := range namespaces {
			r.informers = append(r.informers, &informer{
				reader: r, resource: kind, objects: make(map[objectName]runtime.Object),
				status: InformerStatus{Resource: kind.String(), Namespace: n},
			})
		}
	}
	return r, nil
}

// Recheck implements mesh.ClusterReader.
func (r *Reader) Recheck() { notify(r.recheck) }

// notify sends on a channel with a buffer of one, unless it is full.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Mapping returns a reader that reports only service keys, for a mesh whose endpoints are
// read from istiod. Only one of the two readers may be run.
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

// Run implements mesh.ClusterReader. It must be called only once.
func (r *Reader) Run(ctx context.Context, changed func(mesh.Changes)) error {
	p := &changeReporter{reader: r, changed: changed}
	for ctx.Err() == nil {
		if err := r.runConnection(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// runConnection reads over one connection until ctx ends or Recheck is called.
func (r *Reader) runConnection(ctx context.Context, p *changeReporter) error {
	clients, err := r.o.newClients()
	if err != nil {
		return err
	}
	// client-go does not log: the status has the errors.
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	var group sync.WaitGroup
	defer clients.transport.CloseIdleConnections()
	defer group.Wait()
	defer cancel()
	p.beginConnection()
	r.mu.Lock()
	for _, i := range r.informers {
		i.client = clients.byVersion[i.resource.GroupVersion]
		i.status.Listed, i.isWatched, i.status.Err = false, false, nil
	}
	r.mu.Unlock()
	for _, i := range r.informers {
		group.Go(func() { i.run(ctx) })
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.recheck:
			return nil
		case <-r.wake:
			p.report()
		}
	}
}

// changeModel calls do while holding mu, and wakes Run to report the changes.
func (r *Reader) changeModel(do func(*Model)) {
	r.mu.Lock()
	do(r.model)
	r.mu.Unlock()
	notify(r.wake)
}
