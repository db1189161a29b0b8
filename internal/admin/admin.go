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

// Loop is what the package uses of a bridge.Loop. The loop's own goroutine answers
// Alive, Approve and Deny, which proves that it is alive. Summary and Status return the
// last published state. After Alive, Approve or Deny that state is current.
type Loop interface {
	Decisions

	Summary() bridge.Status
	Status() bridge.Status
	Alive(ctx context.Context) error
}

// Decisions are the decisions about holds that a loop leaves to an operator.
type Decisions interface {
	Approve(ctx context.Context, id, who string) error
	Deny(ctx context.Context, id, who string) error
}

// Input is one source: its table, and the state that only the source itself knows.
type Input struct {
	Name  string // its name in the configuration
	Kind  string // mesh, zookeeper, nacos, kubernetes
	Table *registry.Table
	State func() SourceState // must not block
}

// Target is one target and its loop.
type Target struct {
	Name     string // such as zk, or mesh (:15031)
	Registry string // its name in the configuration
	Listen   string // the address at which a mesh is served; empty for other kinds
	Kind     string // mesh, zookeeper, nacos, kubernetes
	Loop     Loop
	State    func() TargetState // must not block
}

// Options configure a Server.
type Options struct {
	// The addresses of the listeners. Empty, or off: no listener.
	Telemetry string  // of probes and metrics, such as :9902
	Admin     string  // of the API; see CheckAddress
	Secure    *Secure // TLS and the token of the API; nil: plaintext without a token

	// What is shown. Show replaces Owner, Inputs and Targets.
	Version  string
	Owner    string
	Inputs   []Input
	Targets  []Target
	Replicas func() *Replicas // nil if there is only one replica; must not block
	Metrics  http.Handler     // answers /metrics; may be nil

	// Reload reads the configuration again. Reloaded returns the result of the last reload.
	// Both may be nil.
	Reload   func(context.Context) (Reload, error)
	Reloaded func() *Reload

	// If one of these is nil, the Server creates its own, which only it uses.
	Events *Events
	Audit  *audit.Log // records each decision about a hold
	Log    *slog.Logger
}

// Server serves both listeners. It is safe for concurrent use.
type Server struct {
	*reporter

	telemetry net.Listener // nil: no listener
	admin     net.Listener // nil: no listener
}

// New opens both listeners. It answers no request before Run. An error names the invalid
// setting.
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

// TelemetryAddr returns the address of probes and metrics, or nil if they are not
// served.
func (s *Server) TelemetryAddr() net.Addr { return addr(s.telemetry) }

// AdminAddr returns the address of the API, or nil if it is not served.
func (s *Server) AdminAddr() net.Addr { return addr(s.admin) }

func addr(l net.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

// shutdownTimeout is how long Run waits for requests in flight after its context ended.
const shutdownTimeout = 5 * time.Second

// Run serves until ctx ends, waits for the requests in flight, and returns nil. It
// returns an error if a listener fails.
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
