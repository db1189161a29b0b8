package zookeeper

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// FuzzWire shows that the library reads whole packets within the limit, whatever a
// server sends.
func FuzzWire(f *testing.F) {
	hello := append([]byte{0, 0, 0, 36, 0, 0, 0, 0, 0, 0, 0x27, 0x10, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 16}, make([]byte, 16)...)
	packet := append([]byte{0, 0, 0, 16}, make([]byte, 16)...)
	f.Add(bytes.Join([][]byte{hello, packet, packet}, nil))
	f.Add(append(hello, 0, 0, 0, 16, 0xff, 0xff, 0xff, 0xfc, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x8d))
	f.Add(append(hello, 0x7f, 0xff, 0xff, 0xff))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Add([]byte{0, 0, 4, 1})
	f.Fuzz(func(t *testing.T, sent []byte) {
		const limit = 1 << 10
		w := newWire(receivedConn{bytes.NewReader(sent)}, nil, Options{ReceiveLimit: limit, DialTimeout: time.Second})
		got, err := io.ReadAll(w)
		if err == nil && w.failure() != nil {
			t.Errorf("Read = nil with failure %v, want it returned", w.failure())
		}
		if len(got) > len(sent) {
			t.Errorf("Read returned %d bytes of %d", len(got), len(sent))
		}
	})
}

// receivedConn is a connection on which everything was received already.
type receivedConn struct{ io.Reader }

func (receivedConn) Write(p []byte) (int, error)      { return len(p), nil }
func (receivedConn) Close() error                     { return nil }
func (receivedConn) LocalAddr() net.Addr              { return nil }
func (receivedConn) RemoteAddr() net.Addr             { return nil }
func (receivedConn) SetDeadline(time.Time) error      { return nil }
func (receivedConn) SetReadDeadline(time.Time) error  { return nil }
func (receivedConn) SetWriteDeadline(time.Time) error { return nil }
