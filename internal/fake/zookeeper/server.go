package zookeeper

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Options tune a Server.
type Options struct {
	TLS *tls.Config // nil: plaintext
}

// ZooKeeper's own defaults.
const (
	maxBuffer  = 0xfffff         // bytes of a packet, jute.maxbuffer
	minSession = 4 * time.Second // minimum session timeout
	maxSession = 40 * time.Second
)

// Server is a ZooKeeper server. It is safe for concurrent use.
type Server struct {
	opts Options
	done sync.WaitGroup

	mu        sync.Mutex
	tree      *tree
	sessions  map[int64]*session
	conns     map[*conn]struct{}
	listeners map[net.Listener]struct{}
	past      *tree // the tree that lagging connections see; nil: none lags
	fault     func(Request) Fault
	counts    map[Op]int
	rearmed   int
	changes   int
	nextID    int64
	closed    bool
}

// session is the session of a client. It survives without a connection for its timeout.
type session struct {
	id       int64
	password []byte
	timeout  time.Duration
	timer    *time.Timer
	conn     *conn
}

// New returns a server with an empty tree. It does not listen yet.
func New(opts Options) *Server {
	return &Server{
		opts: opts, tree: newTree(), nextID: time.Now().UnixMilli() << 16,
		sessions: make(map[int64]*session), conns: make(map[*conn]struct{}),
		listeners: make(map[net.Listener]struct{}), counts: make(map[Op]int),
	}
}

// Listen makes the server listen on a TCP address, such as 127.0.0.1:0, and
// returns the address with the port.
func (s *Server) Listen(ctx context.Context, address string) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	if err := s.Serve(l); err != nil {
		return "", errors.Join(err, l.Close())
	}
	return l.Addr().String(), nil
}

// Serve makes the server accept connections from a listener, which Close closes. It does not block.
func (s *Server) Serve(l net.Listener) error {
	if s.opts.TLS != nil {
		l = tls.NewListener(l, s.opts.TLS)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.listeners[l] = struct{}{}
	s.done.Go(func() { s.accept(l) })
	return nil
}

func (s *Server) accept(l net.Listener) {
	for {
		raw, err := l.Accept()
		if err != nil || s.serveConn(raw) != nil {
			return
		}
	}
}

// Dial returns a connection to the server within the process, whatever the address. It can replace
// the dialer of a client.
func (s *Server) Dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	if err := s.serveConn(server); err != nil {
		return nil, err
	}
	return client, nil
}

// serveConn serves a connection.
func (s *Server) serveConn(raw net.Conn) error {
	c := &conn{Conn: raw, server: s, out: newOutbox(), gone: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.past = s.past
	if s.closed {
		_ = raw.Close() // the connection was never used
		return net.ErrClosed
	}
	s.conns[c] = struct{}{}
	s.done.Go(c.serve)
	return nil
}

// Close stops the server and waits for everything that it started. The sessions end. The tree can
// still be read.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	var errs []error
	for l := range s.listeners {
		errs = append(errs, l.Close())
	}
	for _, ses := range s.sessions {
		ses.timer.Stop()
	}
	s.mu.Unlock()
	s.DropConnections()
	s.done.Wait()
	return errors.Join(errs...)
}

// DropConnections cuts every connection; the sessions continue.
func (s *Server) DropConnections() {
	s.mu.Lock()
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.cut()
	}
}

// Sessions returns the ids of the live sessions.
func (s *Server) Sessions() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]int64, 0, len(s.sessions))
	for id := range s.sessions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Expire ends a session as if its client had been silent for too long: its ephemeral nodes are
// deleted, and its connection is cut.
func (s *Server) Expire(id int64) {
	s.mu.Lock()
	ses := s.sessions[id]
	var c *conn
	if ses != nil {
		c = ses.conn
		s.end(ses)
	}
	s.mu.Unlock()
	if c != nil {
		c.cut()
	}
}

// end removes a session and its ephemeral nodes. The caller holds the lock.
func (s *Server) end(ses *session) {
	if s.sessions[ses.id] != ses {
		return
	}
	ses.timer.Stop()
	delete(s.sessions, ses.id)
	s.tree.begin()
	for path, n := range s.tree.nodes {
		if n.stat.EphemeralOwner == ses.id {
			s.tree.remove(who{admin: true}, path, -1)
		}
	}
	s.committed()
}

// zxid returns the id of the last transaction.
func (s *Server) zxid() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tree.zxid
}

// open returns the session of a connect request, or a new one. It returns nil if the requested
// session no longer exists.
func (s *Server) open(c *conn, id int64, password []byte, timeout time.Duration) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	timeout = min(max(timeout, minSession), maxSession)
	ses := s.sessions[id]
	switch {
	case s.closed || id != 0 && (ses == nil || string(ses.password) != string(password)):
		return nil
	case id == 0:
		s.nextID++
		ses = &session{id: s.nextID, password: make([]byte, 16), timeout: timeout}
		if _, err := rand.Read(ses.password); err != nil {
			return nil
		}
		binary.BigEndian.PutUint64(ses.password, uint64(ses.id))
		s.add(ses)
	}
	ses.timer.Reset(ses.timeout)
	ses.conn = c
	return ses
}

// add adds a session and starts its timeout. The caller holds the lock.
func (s *Server) add(ses *session) {
	ses.timer = time.AfterFunc(ses.timeout, func() { s.Expire(ses.id) })
	s.sessions[ses.id] = ses
}

// touch restarts the timeout of a session, and returns false if the session has ended.
func (s *Server) touch(ses *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[ses.id] != ses {
		return false
	}
	ses.timer.Reset(ses.timeout)
	return true
}

// committed notifies the watches of the changes of a transaction. The caller holds the lock.
func (s *Server) committed() {
	for _, e := range s.tree.events {
		for c := range s.conns {
			c.notify(e)
		}
	}
	s.tree.undo, s.tree.events = s.tree.undo[:0], nil
}
