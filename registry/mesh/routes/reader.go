package routes

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// Reader reads the routes of the hosts that are watched. Its methods may be called from any
// goroutine. Only Run waits for the network.
type Reader struct {
	// Immutable.
	client  *ads.Client
	sub     *ads.Subscription[*Table]
	changed func(naming.HostAddress)

	// Guarded by mu. Both have only watched hosts.
	mu          sync.Mutex
	watchCounts map[naming.HostAddress]int
	tables      map[naming.HostAddress]*Table
}

// New returns a reader that connects as a proxyless client once a host is watched. The
// function changed is called with each host whose routes changed, always from the same
// goroutine. It must not block.
func New(o ads.Options, changed func(naming.HostAddress)) (*Reader, error) {
	o.Node = proxyless(o.Node)
	client, err := ads.New(o)
	if err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	r := &Reader{
		client: client, changed: changed,
		watchCounts: map[naming.HostAddress]int{}, tables: map[naming.HostAddress]*Table{},
	}
	r.sub = ads.Subscribe(client, ads.Kind[*Table]{URL: Type, Decode: Decode}, r.apply)
	return r, nil
}

// proxyless returns the node of a client without a proxy. istiod sends such a client the
// routes of each host in a resource of its own.
func proxyless(n *corev3.Node) *corev3.Node {
	n = proto.CloneOf(n)
	if n.GetMetadata().GetFields() == nil {
		n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
	}
	n.Metadata.Fields["GENERATOR"] = structpb.NewStringValue("grpc")
	return n
}

// Run reads until ctx ends. It returns nil after everything that it started has ended.
func (r *Reader) Run(ctx context.Context) error {
	return r.client.Run(ctx)
}

// State returns the state of the stream.
func (r *Reader) State() ads.State { return r.client.State() }

// Watch watches the routes of a host, until Unwatch was called as many times.
func (r *Reader) Watch(a naming.HostAddress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watchCounts[a]++; r.watchCounts[a] == 1 {
		r.sub.Watch(Resource(a))
	}
}

// Unwatch undoes one Watch of the same host.
func (r *Reader) Unwatch(a naming.HostAddress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watchCounts[a]--; r.watchCounts[a] > 0 {
		return
	}
	delete(r.watchCounts, a)
	delete(r.tables, a)
	r.sub.Unwatch(Resource(a))
}

// Get returns the last known routes of a host. It returns nil if istiod has reported none:
// then a call may go to any endpoint.
func (r *Reader) Get(a naming.HostAddress) *Table {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tables[a]
}

// apply records the routes that istiod sent. After a lost stream, or for routes that cannot
// be decoded, the last known ones stay in use.
func (r *Reader) apply(e ads.Event[*Table]) {
	changed := make(map[naming.HostAddress]*Table, len(e.Changed)+len(e.Removed))
	for _, c := range e.Changed {
		changed[c.Value.Host] = c.Value
	}
	for _, name := range e.Removed {
		if id, err := naming.ParseCluster(name); err == nil {
			changed[id.HostAddress()] = nil
		}
	}
	r.mu.Lock()
	maps.DeleteFunc(changed, func(a naming.HostAddress, _ *Table) bool { return r.watchCounts[a] == 0 })
	for a, t := range changed {
		if t == nil {
			delete(r.tables, a)
		} else {
			r.tables[a] = t
		}
	}
	r.mu.Unlock()
	for a := range changed {
		r.changed(a)
	}
}
