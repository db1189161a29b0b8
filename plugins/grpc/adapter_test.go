package grpc_test

import (
	"net/url"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc/resolver"

	"github.com/xds-bridge/xds-bridge/internal/conformance/plugin"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	xgrpc "github.com/xds-bridge/xds-bridge/plugins/grpc"
)

// following is a gRPC connection that keeps the last report of its resolver.
type following struct {
	resolver.ClientConn
	resolver resolver.Resolver
	stop     sync.Once

	mu   sync.Mutex
	last resolver.State
	err  error
}

// UpdateState implements resolver.ClientConn.
func (f *following) UpdateState(s resolver.State) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.err = s, nil
	return nil
}

// ReportError implements resolver.ClientConn.
func (f *following) ReportError(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// Found implements plugin.Following.
func (f *following) Found() ([]plugin.Found, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []plugin.Found
	for _, a := range f.last.Addresses {
		known, _ := xgrpc.Known(a)
		found = append(found, plugin.Found{Address: a.Addr, Weight: int(known.Weight.Part() * 100)})
	}
	return found, f.err
}

// Spoil implements plugin.Following.
func (f *following) Spoil() {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Reverse(f.last.Addresses)
	clear(f.last.Addresses)
	clear(f.last.Endpoints)
}

// Stop implements plugin.Following. gRPC closes a resolver once.
func (f *following) Stop() { f.stop.Do(f.resolver.Close) }

func TestAdapter(t *testing.T) {
	plugin.Adapters(t, plugin.Adapter{Follow: func(t testing.TB, r client.Registry, name string) plugin.Following {
		f := &following{}
		built, err := xgrpc.NewBuilder(r).Build(resolver.Target{URL: url.URL{Scheme: xgrpc.Scheme, Path: "/" + name}}, f, resolver.BuildOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f.resolver = built
		return f
	}})
}
