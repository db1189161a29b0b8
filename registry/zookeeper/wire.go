package zookeeper

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// wire is a connection as the library uses it, and does what the library does not:
//
//   - It authenticates before the first request of every connection.
//   - It reads the timeout that the server grants.
//   - It limits the wait for a server that does not answer the handshake.
//   - It refuses packets that are too large or not an answer of ZooKeeper, before memory is
//     allocated for them.
//   - It arms watches of which the library does not know, see wire_watch.go.
type wire struct {
	net.Conn

	// Immutable.
	credentials []byte // empty: none
	limit       int    // of an answer, in bytes
	handshake   time.Duration

	// isBehind reports whether the server is behind a transaction. It is called if the
	// server closes the connection during the handshake.
	isBehind func(zxid int64) bool

	session atomic.Int64 // 0 until the server has answered
	timeout atomic.Int32 // of the session, in milliseconds
	zxid    atomic.Int64 // of the server, in the last answer that had one

	// Owned by the library's goroutine that writes. Its goroutine that reads uses seen, once
	// the connect request was sent.
	unsent []byte // credentials to be sent before the next request
	seen   int64  // the last transaction of the session, by the connect request

	// Owned by the library's goroutine that reads.
	in       *bufio.Reader
	head     []byte // read, and not returned by Read yet
	bodyLeft int    // bytes of the packet that are not read yet

	mu      sync.Mutex
	err     error                // why the connection cannot be used
	watches map[watchRequest]int // number of requests that arm a watch each
}

const (
	opAuth  = 100
	xidAuth = -4

	headLen            = 16 // of an answer: xid, zxid and error code
	maxAnswer          = 1 << 30
	maxConnectResponse = 1 << 10

	// codeNothing is NOTHING of ZooKeeper's KeeperException, for which the library returns
	// zk.ErrNothing. No server answers with it, so that wire uses it for an answer over the
	// limit.
	codeNothing = -117
)

// errPacket is wrapped if the server does not speak the protocol of ZooKeeper.
var errPacket = errors.New("not an answer of ZooKeeper")

// errNoAnswer is wrapped if the server closes a connection during the handshake.
var errNoAnswer = errors.New("the server closed the connection without an answer: " +
	"this address has reached its maxClientCnxns (60 by default), or the server is not serving")

func newWire(raw net.Conn, auth []byte, opts Options) *wire {
	return &wire{
		Conn: raw, credentials: auth, unsent: auth, limit: opts.ReceiveLimit, handshake: opts.DialTimeout,
		in: bufio.NewReaderSize(raw, 64<<10),
	}
}

// failure returns why the connection cannot be used; nil if no failure is known.
func (w *wire) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// SetReadDeadline implements net.Conn. It shortens the library's wait for the answer to
// the first packet.
func (w *wire) SetReadDeadline(t time.Time) error {
	if soon := time.Now().Add(w.handshake); !t.IsZero() && w.session.Load() == 0 && t.After(soon) {
		t = soon
	}
	return w.Conn.SetReadDeadline(t)
}

// Write implements net.Conn. During a session it returns no error: it closes the
// connection, which the library's reader notices. On an error the library would answer the
// request, answer it again when the connection ends, and a third time if the client closes
// meanwhile. The channel of a request has room for two answers, so that Close would block
// forever.
func (w *wire) Write(p []byte) (int, error) {
	if w.session.Load() == 0 {
		if len(p) >= 16 { // the connect request: length, version, zxid
			w.seen = int64(binary.BigEndian.Uint64(p[8:]))
		}
		n, err := w.Conn.Write(p)
		if err != nil {
			_ = w.fail(fmt.Errorf("write: %w: %w", err, errNoAnswer))
		}
		return n, err
	}
	packet := w.armed(p)
	if len(w.unsent) > 0 {
		packet = append(authPacket(w.unsent), packet...)
		w.unsent = nil
	}
	if _, err := w.Conn.Write(packet); err != nil {
		_ = w.fail(fmt.Errorf("write: %w", err))
		_ = w.Close()
	}
	return len(p), nil
}

// fail keeps the first reason why the connection cannot be used, and returns err.
func (w *wire) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = cmp.Or(w.err, err)
	return err
}

func authPacket(credentials []byte) []byte {
	const scheme = "digest"
	b := make([]byte, 4, 64)
	xid := int32(xidAuth)
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, opAuth)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(scheme)))
	b = append(b, scheme...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(credentials)))
	b = append(b, credentials...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	if len(w.head) == 0 && w.bodyLeft == 0 {
		if err := w.next(); err != nil {
			return 0, w.fail(err)
		}
	}
	if len(w.head) > 0 {
		n := copy(p, w.head)
		w.head = w.head[n:]
		return n, nil
	}
	n, err := w.in.Read(p[:min(len(p), w.bodyLeft)])
	w.bodyLeft -= n
	return n, err
}

// next reads the head of the next packet into w.head.
func (w *wire) next() error {
	for {
		head := make([]byte, 4, 4+headLen)
		if _, err := io.ReadFull(w.in, head); err != nil {
			return w.ended(err)
		}
		n := int(binary.BigEndian.Uint32(head))
		if w.session.Load() == 0 {
			return w.connectResponse(head, n)
		}
		if n < headLen || n > maxAnswer {
			return fmt.Errorf("%w: a packet of %d bytes", errPacket, n)
		}
		head = head[:4+headLen]
		if _, err := io.ReadFull(w.in, head[4:]); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if zxid := int64(binary.BigEndian.Uint64(head[8:])); zxid > 0 {
			w.zxid.Store(zxid)
		}
		xid := int32(binary.BigEndian.Uint32(head[4:]))
		if n > w.limit {
			return w.tooLarge(head, xid, n)
		}
		if xid != xidAuth {
			w.head, w.bodyLeft = head, n-headLen
			return nil
		}
		if code := int32(binary.BigEndian.Uint32(head[16:])); code != 0 {
			return fmt.Errorf("user and passwordFile: the server refused them with code %d", code)
		}
		if _, err := w.in.Discard(n - headLen); err != nil {
			return fmt.Errorf("read: %w", err)
		}
	}
}

// tooLarge replaces an answer over the limit with an error without a body, so that only its
// request fails. If the packet is an event, the connection fails.
func (w *wire) tooLarge(head []byte, xid int32, n int) error {
	if xid < 0 {
		return fmt.Errorf("a packet of %d bytes exceeds limits.maxReceive of %d", n, w.limit)
	}
	if _, err := w.in.Discard(n - headLen); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	code := int32(codeNothing)
	binary.BigEndian.PutUint32(head, headLen)
	binary.BigEndian.PutUint32(head[16:], uint32(code))
	w.head = head
	return nil
}

// ended returns why no packet follows. A server that is behind the last transaction of the
// session closes the connection instead of an answer. After a wipe or a restore all servers
// do, so that the session never continues: then the library gets the answer that a server
// sends for an expired session.
func (w *wire) ended(err error) error {
	if w.session.Load() == 0 && w.seen > 0 && !errors.Is(err, os.ErrDeadlineExceeded) && w.isBehind(w.seen) {
		w.head = expiredPacket()
		return nil
	}
	if w.session.Load() == 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("read: %w: %w", err, errNoAnswer)
	}
	return fmt.Errorf("read: %w", err)
}

// expiredPacket returns the answer to a connect request for an expired session.
func expiredPacket() []byte {
	const passwordLen = 16
	b := make([]byte, 4+4+4+8+4+passwordLen)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	binary.BigEndian.PutUint32(b[4+4+4+8:], passwordLen)
	return b
}

// connectResponse reads the answer to a connect request:
//
//	version int32, timeout int32, session int64, password (16 bytes with their length)
func (w *wire) connectResponse(head []byte, n int) error {
	if n < 36 || n > maxConnectResponse {
		return fmt.Errorf("%w: it begins with %q; check that this is the client port, "+
			"and that tls is set if the server requires TLS", errPacket, head)
	}
	packet := make([]byte, 4+n)
	copy(packet, head)
	if _, err := io.ReadFull(w.in, packet[4:]); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	w.timeout.Store(int32(binary.BigEndian.Uint32(packet[8:])))
	w.session.Store(int64(binary.BigEndian.Uint64(packet[12:])))
	w.head = packet
	return nil
}
