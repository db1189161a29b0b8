package kratos_test

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"

	kratos "github.com/go-kratos/kratos/v2/registry"

	"github.com/xds-bridge/xds-bridge/internal/conformance/plugin"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	xkratos "github.com/xds-bridge/xds-bridge/plugins/kratos"
)

// following reads a watcher in its own goroutine, as Kratos' resolver does.
type following struct {
	watcher kratos.Watcher
	end     context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	last []*kratos.ServiceInstance
	err  error
}

func (f *following) follow() {
	for {
		found, err := f.watcher.Next()
		f.mu.Lock()
		f.last, f.err = found, err
		f.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Found implements plugin.Following.
func (f *following) Found() ([]plugin.Found, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []plugin.Found
	for _, i := range f.last {
		for _, text := range i.Endpoints {
			u, err := url.Parse(text)
			if err != nil {
				return nil, err
			}
			weight, _ := strconv.Atoi(i.Metadata["weight"]) // 0: it gets none
			found = append(found, plugin.Found{Address: u.Host, Weight: weight})
		}
	}
	return found, f.err
}

// Spoil implements plugin.Following.
func (f *following) Spoil() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range f.last {
		clear(i.Endpoints)
		clear(i.Metadata)
	}
	slices.Reverse(f.last)
}

// Stop implements plugin.Following.
func (f *following) Stop() {
	f.end()
	_ = f.watcher.Stop()
	f.running.Wait()
}

func TestAdapter(t *testing.T) {
	plugin.Adapters(t, plugin.Adapter{Follow: func(t testing.TB, r client.Registry, name string) plugin.Following {
		ctx, end := context.WithCancel(context.Background())
		w, err := xkratos.New(r).Watch(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		f := &following{watcher: w, end: end}
		f.running.Go(f.follow)
		return f
	}})
}
