package zookeeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

// dial makes one connection for the library.
func (s *session) dial(ctx context.Context, network, address string) (net.Conn, error) {
	auth, err := s.opts.credentials()
	if err != nil {
		return nil, s.dialFailed(address, err)
	}
	raw, err := s.open(ctx, network, address)
	if err != nil {
		return nil, s.dialFailed(address, err)
	}
	w := newWire(raw, auth, s.opts)
	w.isBehind = func(zxid int64) bool { return s.isBehind(ctx, address, zxid) }
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing && ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), raw.Close())
	}
	if s.wire != nil {
		_ = s.wire.Close() // the library leaves that of an expired session open
	}
	s.wire = w
	return w, nil
}

// isBehind reports whether a server is behind the last transaction of the session, by a
// request over another connection. A server that only lags behind its ensemble catches up
// before it answers, because of sync.
func (s *session) isBehind(ctx context.Context, address string, zxid int64) bool {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opts := s.opts
	opts.Servers, opts.Timeout, opts.Log, opts.Observe = []string{address}, opts.DialTimeout, nil, nil
	probe, err := newSession(opts, &singleConnection{end: cancel})
	if err != nil || probe.connect() != nil { //nolint:contextcheck // it ends by close
		return false
	}
	defer probe.close(func() {})
	at, err := call(ctx, probe, func(conn conn) (int64, error) {
		_, err := conn.Sync("/")
		return probe.zxid(), err
	})
	if err != nil || at >= zxid {
		return false
	}
	s.opts.Log.Warn("zookeeper is behind the last transaction of this session (wiped or restored?), starting a new one",
		"server", address, "zxid", hexID(at), "seen", hexID(zxid))
	s.pace = pace{} // the next connection follows at once
	return true
}

// zxid returns the last transaction that the server reported.
func (s *session) zxid() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wire == nil {
		return 0
	}
	return s.wire.zxid.Load()
}

// open connects to a server and secures the connection.
func (s *session) open(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.DialTimeout)
	defer cancel()
	conn, err := tlsfile.Secure(s.opts.Dial, s.opts.TLS)(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// dialSame returns a dialer to the server to which the session is connected. The name of
// the server may have the addresses of several servers.
func (s *session) dialSame() func(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.wire.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return s.opts.Dial
	}
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return s.opts.Dial(ctx, network, at.String())
	}
}

func (s *session) dialFailed(address string, err error) error {
	s.mu.Lock()
	s.state.Server, s.state.LastError = address, err.Error()
	state := s.state
	s.mu.Unlock()
	s.observe(state)
	return err
}

// credentials returns the credentials of the digest scheme, nil without a user.
func (o Options) credentials() ([]byte, error) {
	if o.User == "" {
		return nil, nil
	}
	b, err := os.ReadFile(o.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("zookeeper: passwordFile: %w", err)
	}
	password := strings.TrimSpace(string(b)) // as xds-bridge validate reads it
	if password == "" {
		return nil, fmt.Errorf("zookeeper: passwordFile %s is empty", o.PasswordFile)
	}
	return []byte(o.User + ":" + password), nil
}

// reauthenticate closes the connection if the credentials in the files have changed since
// it was made. The session continues over another connection.
func (s *session) reauthenticate() {
	now, err := s.opts.credentials()
	s.mu.Lock()
	w := s.wire
	s.mu.Unlock()
	if err == nil && w != nil && !bytes.Equal(now, w.credentials) {
		_ = w.Close() // the library makes another connection
	}
}

// hosts returns the servers in turn. In contrast to the host provider of the library, it
// leaves the names to the dialer. So they are resolved for every connection, and a name
// that cannot be resolved yet is not an error at the start. Only the library's goroutine
// uses it.
type hosts struct {
	servers []string
	next    int
	tried   int // number of servers since a connection succeeded
}

// Init implements zk.HostProvider.
func (h *hosts) Init(servers []string) error {
	if len(servers) == 0 {
		return errors.New("no server")
	}
	h.servers = servers
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements zk.HostProvider. RetryStart reports that all servers were tried; then the
// library pauses for a second.
func (h *hosts) Next() (server string, retryStart bool) {
	server = h.servers[h.next%len(h.servers)]
	retryStart = h.tried > 0 && h.tried%len(h.servers) == 0
	h.next++
	h.tried++
	return server, retryStart
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() { h.tried = 0 }

// singleConnection limits a session to one connection, because watches are useless after
// the connection has ended: everything has to be read again over the next one. The library
// would first arm all watches again, from a position in the log that may be behind its own
// reads. A nil singleConnection has no limit.
type singleConnection struct {
	used   bool
	end    context.CancelCauseFunc // called when the connection has ended
	events *watchEvents            // receives changes and the loss of the connection; may be nil
}

func (s *singleConnection) notify(event func(*watchEvents)) {
	if s != nil && s.events != nil {
		event(s.events)
	}
}

// errEnded means that the single connection of a session has ended.
var errEnded = errors.New("the connection has ended")

// dial makes the connection, and fails if it was made before. The library makes one
// connection at a time.
func (s *singleConnection) dial(connect func() (net.Conn, error)) (net.Conn, error) {
	if s == nil {
		return connect()
	}
	if s.used {
		s.end(errEnded)
		return nil, errEnded
	}
	conn, err := connect()
	s.used = err == nil
	return conn, err
}

// paceReset is the duration of a connection that resets its pace.
const paceReset = 10 * time.Second

// A pace limits the rate of connections. The library pauses only if no server is reachable.
// Without a pace, all clients would reconnect at once to a server that closes each
// connection. A connection that follows another one too soon waits, each time twice as
// long. A failed dial does not count, so that nothing waits after an outage.
type pace struct {
	last  time.Time
	count int // of connections in a row, each soon after the last one
}

// next waits until the next connection may be made, or ctx ends.
func (p *pace) next(ctx context.Context) {
	if time.Since(p.last) >= paceReset {
		p.count = 0
	}
	if p.count > 0 {
		registry.Sleep(ctx, registry.Backoff{Min: 50 * time.Millisecond, Max: 5 * time.Second}.Spread(p.count))
	}
}

// connected counts a connection.
func (p *pace) connected() { p.count, p.last = p.count+1, time.Now() }

// addresses checks a list of servers. It returns them with their ports, and the chroot that
// follows the last one, as in host1:2181,host2:2181/app.
func addresses(servers []string) (out []string, root string, err error) {
	if len(servers) == 0 {
		return nil, "", errors.New("zookeeper: no server; set servers to at least one host:port")
	}
	for i, s := range servers {
		if i == len(servers)-1 {
			s, root, err = splitChroot(s)
			if err != nil {
				return nil, "", err
			}
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			host, port = strings.Trim(s, "[]"), "2181"
			if strings.Contains(host, ":") && !strings.HasPrefix(s, "[") {
				return nil, "", fmt.Errorf("zookeeper: server %q: put the IPv6 address in brackets, as in [::1]:2181", s)
			}
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || host == "" || strings.ContainsAny(host, "/ ,[]") {
			return nil, "", fmt.Errorf("zookeeper: server %q: must be host:port, such as 127.0.0.1:2181", s)
		}
		out = append(out, net.JoinHostPort(host, port))
	}
	return out, root, nil
}

func splitChroot(server string) (host, root string, err error) {
	host, path, _ := strings.Cut(server, "/")
	path = strings.TrimSuffix(path, "/")
	if path == "" {
		return host, "", nil
	}
	for part := range strings.SplitSeq(path, "/") {
		if err := checkName(part); err != nil {
			return "", "", fmt.Errorf("zookeeper: server %q: the chroot is not a path: %w", server, err)
		}
	}
	return host, "/" + path, nil
}
