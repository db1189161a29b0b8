package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	istiodfake "github.com/xds-bridge/xds-bridge/internal/fake/istiod"
)

// istiod is the embedded mesh: xDS and the debug API on loopback.
type istiod struct {
	server *istiodfake.Server
	xds    net.Listener
	debug  net.Listener

	mu   sync.Mutex
	mesh *meshFile
	up   time.Time
}

// newIstiod opens both listeners on free ports.
func newIstiod(ctx context.Context, m *meshFile) (*istiod, error) {
	var config net.ListenConfig
	xds, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("embedded mesh: %w", err)
	}
	debug, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded mesh: %w", err), xds.Close())
	}
	i := &istiod{server: istiodfake.NewServer(), xds: xds, debug: debug, mesh: m, up: time.Now().Add(-time.Hour)}
	i.push()
	return i, nil
}

// run serves until ctx ends, and returns when everything that it started has ended.
func (i *istiod) run(ctx context.Context) error {
	discovery := grpc.NewServer(istiodfake.ServerOptions()...)
	i.server.Register(discovery)
	api := &http.Server{Handler: http.HandlerFunc(i.debugAPI), ReadHeaderTimeout: 5 * time.Second}
	var running sync.WaitGroup
	failed := make(chan error, 2)
	running.Go(func() { failed <- discovery.Serve(i.xds) })
	running.Go(func() { failed <- api.Serve(i.debug) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	discovery.Stop()
	err = errors.Join(err, api.Close())
	running.Wait()
	return err
}

// debugAPI serves istiod's debug port for callers on loopback.
func (i *istiod) debugAPI(w http.ResponseWriter, r *http.Request) {
	istiodfake.ServeDebug(w, r, i.clients())
}

// clients returns the providers of the mesh and the connected clients.
func (i *istiod) clients() []istiodfake.Client {
	i.mu.Lock()
	list := i.mesh.clients(i.up)
	i.mu.Unlock()
	for _, c := range i.server.Connections() {
		list = append(list, istiodfake.Client{ID: c.ID, ConnectedAt: c.ConnectedAt, Address: c.Address})
	}
	return list
}

// apply applies a step to the mesh and pushes the changes.
func (i *istiod) apply(st step) {
	i.mu.Lock()
	i.mesh.apply(st)
	i.mu.Unlock()
	i.push()
}

// push passes all resources to the server, which determines what changed.
func (i *istiod) push() {
	i.mu.Lock()
	defer i.mu.Unlock()
	var all []proto.Message
	for _, c := range i.mesh.clusters() {
		all = append(all, c)
	}
	for _, a := range i.mesh.assignments() {
		all = append(all, a)
	}
	i.server.Set(all...)
}
