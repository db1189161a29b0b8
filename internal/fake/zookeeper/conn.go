package zookeeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// conn is a connection. One goroutine reads and answers requests in order, another one writes.
type conn struct {
	net.Conn
	server *Server
	out    outbox
	gone   chan struct{} // closed when the connection is cut
	once   sync.Once

	// Owned by the reading goroutine.
	session *session
	ids     []identity

	// Guarded by the server's lock.
	onData, onList map[string]struct{}
	past           *tree // the tree that the client sees until it syncs; nil: the current one
}

var (
	errClosed = errors.New("the client closed the session")
	errAhead  = errors.New("the client has seen a later transaction than this server, and must try another server")
)

// handshake is the time limit for the connect request of a client.
const handshake = 10 * time.Second

// cut closes the connection; the session continues.
func (c *conn) cut() {
	c.once.Do(func() {
		close(c.gone)
		_ = c.Close() // an error would have no reader
	})
}

func (c *conn) serve() {
	var writer sync.WaitGroup
	writer.Go(c.write)
	defer writer.Wait()
	defer c.leave()
	if c.connect() != nil {
		return
	}
	for {
		b, err := c.read()
		if err != nil {
			return
		}
		r, err := decodeRequest(b)
		if err != nil || c.handle(r) != nil {
			return
		}
	}
}

func (c *conn) leave() {
	c.server.mu.Lock()
	delete(c.server.conns, c)
	if c.session != nil && c.session.conn == c {
		c.session.conn = nil
	}
	c.server.mu.Unlock()
	c.cut()
}

func (c *conn) write() {
	for {
		select {
		case <-c.out.wake:
		case <-c.gone:
			return
		}
		packets, last := c.out.drain()
		if _, err := packets.WriteTo(c.Conn); err != nil || last {
			c.cut()
			return
		}
	}
}

// send passes a packet to the writer. It does not block, so that it may be called with the server's
// lock held.
func (c *conn) send(packet []byte) {
	if !c.out.put(packet) {
		c.cut()
	}
}

// finish cuts the connection after everything that was sent is written.
func (c *conn) finish() error {
	c.out.end()
	<-c.gone
	return errClosed
}

func (c *conn) read() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.Conn, head[:]); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return c.readBody(head)
}

func (c *conn) readBody(head [4]byte) ([]byte, error) {
	n := binary.BigEndian.Uint32(head[:])
	if n > maxBuffer {
		return nil, fmt.Errorf("packet of %d bytes exceeds the limit of %d", n, maxBuffer)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.Conn, b); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return b, nil
}

// connect answers the first packet of a connection: a connect request or a four-letter word.
func (c *conn) connect() error {
	_ = c.SetReadDeadline(time.Now().Add(handshake)) // an error shows in the read
	var head [4]byte
	if _, err := io.ReadFull(c.Conn, head[:]); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if answer := c.server.command(string(head[:])); answer != "" {
		c.send([]byte(answer))
		return c.finish()
	}
	b, err := c.readBody(head)
	if err != nil {
		return err
	}
	d := &decoder{b: b}
	d.int32() // version of the protocol
	seen := d.int64()
	timeout, id, password := time.Duration(d.int32())*time.Millisecond, d.int64(), d.bytes()
	if d.err != nil {
		return d.err
	}
	_ = c.SetReadDeadline(time.Time{}) // as above
	if seen > c.server.zxid() {
		return errAhead
	}
	c.session = c.server.open(c, id, password, timeout)
	c.send(connectResponse(c.session))
	if c.session == nil {
		return c.finish()
	}
	return nil
}

func connectResponse(s *session) []byte {
	e := newPacket()
	e.int32(0)
	if s == nil {
		e.int32(0)
		e.int64(0)
		e.bytes(make([]byte, 16))
	} else {
		e.int32(int32(s.timeout / time.Millisecond))
		e.int64(s.id)
		e.bytes(s.password)
	}
	e.byte(0)
	return e.packet()
}

// command returns the answer to a four-letter word; empty for other words.
func (s *Server) command(w string) string {
	switch w {
	case "ruok":
		return "imok"
	case "srvr":
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Sprintf("Zookeeper version: %s, built on 11/21/2026 00:00 UTC\nLatency min/avg/max: 0/0.0/0\n"+
			"Received: 0\nSent: 0\nConnections: %d\nOutstanding: 0\nZxid: %#x\nMode: standalone\nNode count: %d\n",
			Version, len(s.conns), s.tree.zxid, len(s.tree.nodes))
	default:
		return ""
	}
}

// Version is the version that the server reports.
const Version = "3.9.0-memory"

// outbox is the queue of packets to write. It is bounded: a client that reads too slowly is
// disconnected.
type outbox struct {
	wake chan struct{} // ready while there is something to write

	mu      sync.Mutex
	packets net.Buffers
	last    bool
}

// maxWaiting is the capacity of an outbox.
const maxWaiting = 100_000

func newOutbox() outbox { return outbox{wake: make(chan struct{}, 1)} }

// put adds a packet, and returns false if the outbox is full.
func (o *outbox) put(packet []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.packets) >= maxWaiting {
		return false
	}
	o.packets = append(o.packets, packet)
	o.signal()
	return true
}

// end marks the end of the packets.
func (o *outbox) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = true
	o.signal()
}

// drain removes and returns the waiting packets, and whether they are the last ones.
func (o *outbox) drain() (net.Buffers, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	packets := o.packets
	o.packets = nil
	return packets, o.last
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
