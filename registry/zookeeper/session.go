package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// State is the state of a client's session.
type State struct {
	Connected  bool
	Server     string        // the last one tried
	Session    int64         // the id of the last session; 0 before the first
	Timeout    time.Duration // granted by the server for the session
	Sessions   int           // number of sessions until now
	Reconnects int           // how often a session continued over another connection
	Since      time.Time     // of the last change of Connected or Session
	LastError  string        // of the last connection that failed; empty while connected
}

// A session continues over several connections. If it expires, another one replaces
// it. It is safe for concurrent use.
type session struct {
	// Immutable once connect has returned.
	opts    Options
	servers []string
	root    string            // the chroot; empty: none
	single  *singleConnection // nil: any number of connections
	conn    *zk.Conn
	ended   <-chan zk.Event // closed when the goroutines of the library have ended
	stop    context.CancelFunc

	pace  pace           // only the library's goroutine touches it
	calls sync.WaitGroup // in flight

	mu           sync.Mutex
	state        State
	wire         *wire                      // the last connection; nil: none was made
	ready        chan struct{}              // closed while there is a session
	notConnected chan struct{}              // closed while there is no connection
	lost         map[chan struct{}]struct{} // see onLost
	follower     *follower                  // of a shared connection; nil: none
	closing      bool
}

// newSession returns a session that does not connect yet.
func newSession(opts Options, single *singleConnection) (*session, error) {
	opts = opts.withDefaults()
	servers, root, err := addresses(opts.Servers)
	if err != nil {
		return nil, err
	}
	if opts.TLS != nil {
		if _, err := opts.TLS(); err != nil {
			return nil, fmt.Errorf("zookeeper: %w", err)
		}
	}
	if _, err := opts.credentials(); err != nil {
		return nil, err
	}
	s := &session{
		opts: opts, servers: servers, root: root, single: single,
		ready: make(chan struct{}), notConnected: make(chan struct{}), lost: make(map[chan struct{}]struct{}),
	}
	close(s.notConnected)
	return s, nil
}

// connect starts to connect, in goroutines that end by close.
func (s *session) connect() error {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	// The library calls back from its own goroutine, which may be before Connect has
	// returned.
	s.mu.Lock()
	defer s.mu.Unlock()
	connection, ended, err := zk.Connect(s.servers, s.opts.SessionTimeout,
		zk.WithHostProvider(&hosts{}),
		zk.WithDialer(func(network, address string, _ time.Duration) (net.Conn, error) {
			s.pace.next(ctx)
			made, err := s.single.dial(func() (net.Conn, error) { return s.dial(ctx, network, address) })
			if err == nil {
				s.pace.connected()
			}
			return made, err
		}),
		zk.WithEventCallback(s.event),
		zk.WithLogger(printer{s.opts.Log}), zk.WithLogInfo(false),
		zk.WithMaxBufferSize(s.opts.ReceiveLimit))
	if err != nil {
		stop()
		return fmt.Errorf("zookeeper: %w", err)
	}
	s.conn, s.ended = connection, ended
	return nil
}

// close ends the session and waits for its goroutines and calls. Once further calls fail
// it calls first. A second call does nothing.
func (s *session) close(first func()) {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return
	}
	s.closing = true
	connected := s.state.Connected
	s.mu.Unlock()
	first()
	if !connected {
		s.stop() // without a session to end, a dial or a handshake in progress is cut short
		s.closeWire()
	}
	s.conn.Close()
	s.stop()
	s.closeWire()
	for range s.ended { // until the library has closed it
	}
	s.calls.Wait()
}

// State returns the state of the session.
func (s *session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *session) closeWire() {
	s.mu.Lock()
	w := s.wire
	s.mu.Unlock()
	if w != nil {
		_ = w.Close() // there is nowhere to report it
	}
}

// event is the callback of the library. It must not block.
func (s *session) event(e zk.Event) {
	if e.Type != zk.EventSession {
		e.Path = conn{root: s.root}.above(e.Path)
		s.single.notify(func(events *watchEvents) { events.changed(e) })
		s.notify(func(f *follower) { f.events.changed(e) })
		return
	}
	s.mu.Lock()
	before := s.state
	switch e.State {
	case zk.StateHasSession:
		s.connected(e.Server)
	case zk.StateDisconnected, zk.StateExpired:
		s.disconnected(e.Server)
	default: // followed by one of the states above
	}
	after, closing := s.state, s.closing
	s.mu.Unlock()
	if before == after {
		return
	}
	if before.Connected && !after.Connected {
		s.single.notify((*watchEvents).disconnected)
		s.notify(func(f *follower) {
			f.events.disconnected()
			f.end(errLost)
		})
	}
	if !closing {
		s.log(before, after)
	}
	s.observe(after)
}

func (s *session) connected(server string) {
	w := s.wire
	session := w.session.Load()
	if s.state.Session == session {
		s.state.Reconnects++
	} else {
		if s.state.Session != 0 {
			s.signalLost()
		}
		s.state.Sessions++
	}
	s.state.Connected, s.state.Server, s.state.Session = true, server, session
	s.state.Timeout = time.Duration(w.timeout.Load()) * time.Millisecond
	s.state.Since, s.state.LastError = time.Now(), ""
	select {
	case <-s.notConnected:
		s.notConnected = make(chan struct{})
	default:
	}
	select {
	case <-s.ready: // it is closed
	default:
		close(s.ready)
	}
}

func (s *session) disconnected(server string) {
	if s.wire != nil && s.wire.failure() != nil {
		s.state.LastError = s.wire.failure().Error()
		if s.state.Server == "" {
			s.state.Server = server
		}
	}
	if s.state.Connected {
		s.state.Connected, s.state.Server, s.state.Since = false, server, time.Now()
		s.ready = make(chan struct{})
		close(s.notConnected)
	}
}

// onLost returns a channel that is ready after another session replaced the last one,
// until stop is called.
func (s *session) onLost() (lost <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost[ch] = struct{}{}
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.lost, ch)
	}
}

func (s *session) signalLost() {
	for ch := range s.lost {
		wake(ch)
	}
}

func (s *session) log(before, after State) {
	switch {
	case after.Connected && before.Session != 0 && before.Session != after.Session:
		s.opts.Log.Warn("zookeeper session expired, new session established",
			"server", after.Server, "session_id", hexID(after.Session))
	case after.Connected && !before.Connected:
		s.opts.Log.Info("zookeeper connected",
			"server", after.Server, "session_id", hexID(after.Session), "session_timeout", after.Timeout)
	case before.Connected && !after.Connected:
		s.opts.Log.Warn("zookeeper connection lost", "server", after.Server, "err", after.LastError)
	}
}

func hexID(id int64) string { return fmt.Sprintf("%#x", id) }

// printer logs the messages of the library at the level debug. All of them are about
// connections, which session.log logs.
type printer struct{ log *slog.Logger }

// Printf implements zk.Logger.
func (p printer) Printf(format string, args ...any) {
	p.log.Debug("zookeeper client", "text", fmt.Sprintf(format, args...))
}

var errClosed = errors.New("the client is closed")

// errOversized is wrapped if an answer is larger than ReceiveLimit.
var errOversized = fmt.Errorf("%w: the answer exceeds limits.maxReceive", registry.ErrRefused)

// call makes one request. If ctx ends first, it fails at once. Whether the request is
// applied is then unknown, but it is not applied after a later request.
func call[T any](ctx context.Context, s *session, request func(conn) (T, error)) (T, error) {
	var zero T
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	if err := s.begin(ctx); err != nil {
		return zero, err
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		defer s.calls.Done()
		value, err := request(conn{s.conn, s.root})
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, s.translate(r.err)
	case <-ctx.Done():
		return zero, fmt.Errorf("zookeeper: no answer: %w", ctx.Err())
	}
}

// begin waits for a session and counts a call. The caller calls s.calls.Done when the call
// has ended.
func (s *session) begin(ctx context.Context) error {
	for {
		s.mu.Lock()
		ready := s.ready
		if s.closing {
			s.mu.Unlock()
			return fmt.Errorf("zookeeper: %w", errClosed)
		}
		if err := ctx.Err(); err != nil && s.state.Connected {
			s.mu.Unlock()
			return fmt.Errorf("zookeeper: %w", err)
		}
		if s.state.Connected {
			s.calls.Add(1)
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		select {
		case <-ready:
		case <-ctx.Done():
			return s.unreachable(ctx)
		}
	}
}

func (s *session) unreachable(ctx context.Context) error {
	last := s.State().LastError
	if last == "" {
		last = "no server answered"
	}
	return fmt.Errorf("zookeeper: no session with %s: %s: %w", s.opts.Servers, last, ctx.Err())
}

// translate converts the errors of the library to those of package registry.
func (s *session) translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrClosing), errors.Is(err, zk.ErrNoServer):
		if last := s.State().LastError; last != "" {
			return fmt.Errorf("%w: %s", err, last)
		}
		return err
	case errors.Is(err, zk.ErrNoAuth):
		s.reauthenticate()
		return fmt.Errorf("%w: %w; the ACL of the node denies access: check user, passwordFile and the ACL",
			registry.ErrRefused, err)
	case errors.Is(err, zk.ErrNothing):
		return fmt.Errorf("%w of %d bytes; raise it", errOversized, s.opts.ReceiveLimit)
	case errors.Is(err, zk.ErrInvalidPath), errors.Is(err, zk.ErrBadArguments), errors.Is(err, zk.ErrInvalidACL),
		errors.Is(err, zk.ErrNoChildrenForEphemerals), errors.Is(err, zk.ErrShortBuffer):
		return fmt.Errorf("%w: %w", registry.ErrRefused, err)
	default:
		return cmp.Or(serverError(err, s.opts.User), err)
	}
}
