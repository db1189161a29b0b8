// Package admin shows people and machines what the bridge is doing: probes
// and metrics on one HTTP listener, which may face the network, status and
// the release of holds on another, which may not. It knows loops and tables,
// and no adapter.
package admin

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/audit"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Loop is what the package uses of a bridge.Loop. Alive, Approve and Deny are
// answered by the loop's own goroutine, which proves that it is alive. Summary and
// Status report how it was a moment ago and, after one of those, how it is.
type Loop interface {
	Decisions

	Summary() bridge.Status
	Status() bridge.Status
	Alive(ctx context.Context) error
}

// Decisions are what a loop leaves to people.
type Decisions interface {
	Approve(ctx context.Context, id, who string) error
	Deny(ctx context.Context, id, who string) error
}

// Input is one source: its table, and what only the source itself can say.
type Input struct {
	Name  string // as the configuration calls it
	Kind  string // mesh, zookeeper, nacos
	Table *registry.Table
	State func() SourceState // must not block
}

// Target is one loop under the name of its target.
type Target struct {
	Name     string // as in zk, or in mesh (:15031)
	Registry string // as the configuration calls it
	Listen   string // the address at which a mesh is served; empty for all others
	Kind     string // mesh, zookeeper, nacos, kubernetes
	Loop     Loop
	State    func() TargetState // must not block
}

// Options say what a Server shows and where. An empty address, or off, leaves
// that listener out.
type Options struct {
	Telemetry string  // address of probes and metrics, such as :9902
	Admin     string  // address of the API; see CheckAddress
	Secure    *Secure // of the API; nil: plaintext without a token
	Version   string
	Owner     string
	Inputs    []Input
	Targets   []Target
	Replicas  func() *Replicas // nil if this is the only one; must not block
	Metrics   http.Handler     // answers /metrics; may be nil
	Events    *Events
	Audit     *audit.Log // records each decision on a hold

	// Reload reads the configuration again, and Reloaded reports how that went
	// last; both may be nil.
	Reload   func(context.Context) (Reload, error)
	Reloaded func() *Reload

	Log *slog.Logger // nil, as Events and Audit: its own, which nobody reads
}

// Server serves both listeners.
type Server struct {
	*reporter

	telemetry net.Listener // nil if left out, as admin
	admin     net.Listener
}

// New opens both listeners; nothing is answered before Run. An error names
// the setting that is wrong.
func New(ctx context.Context, opts Options) (*Server, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	opts.Events = cmp.Or(opts.Events, &Events{})
	opts.Audit = cmp.Or(opts.Audit, audit.New("", opts.Log))
	s := &Server{reporter: newReporter(opts)}
	if err := CheckAddress(opts.Admin, opts.Secure); err != nil {
		return nil, err
	}
	var err error
	if s.telemetry, err = listen(ctx, "telemetry.address", opts.Telemetry); err != nil {
		return nil, err
	}
	if s.admin, err = listen(ctx, "admin.address", opts.Admin); err != nil {
		return nil, errors.Join(err, closeListener(s.telemetry))
	}
	if s.admin != nil && opts.Secure != nil {
		s.admin = tls.NewListener(s.admin, opts.Secure.config())
	}
	return s, nil
}

func closeListener(l net.Listener) error {
	if l == nil {
		return nil
	}
	return l.Close()
}

// TelemetryAddr returns where probes and metrics are served, nil if they
// are not.
func (s *Server) TelemetryAddr() net.Addr { return addr(s.telemetry) }

// AdminAddr returns where the API is served, nil if it is not.
func (s *Server) AdminAddr() net.Addr { return addr(s.admin) }

func addr(l net.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

// shutdownTimeout is how long requests in flight may still last.
const shutdownTimeout = 5 * time.Second

// Run serves until ctx ends and then returns nil, after the requests in
// flight have ended.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	serve := func(l net.Listener, h http.Handler) {
		if l == nil {
			return
		}
		server := newHTTPServer(h)
		running.Go(func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				cancel(fmt.Errorf("serve %s: %w", l.Addr(), err))
			}
		})
		running.Go(func() {
			<-ctx.Done()
			last, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
			defer done()
			if server.Shutdown(last) != nil {
				_ = server.Close()
			}
		})
	}
	serve(s.telemetry, s.Telemetry())
	serve(s.admin, s.Admin())
	running.Go(func() { s.pollLoops(ctx) })
	running.Go(func() { s.followConditions(ctx) })
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}
