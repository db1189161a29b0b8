package zookeeper

import (
	"net"
	"testing"
)

func TestWire_WriteOfASession(t *testing.T) {
	near, far := net.Pipe()
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	w := newWire(near, []byte("shop:secret"), Options{})
	connect := make([]byte, 44)
	if _, err := w.Write(connect); err == nil {
		t.Error("write of the connect request to a closed connection: got no error, want one")
	}
	w.session.Store(1)
	request := []byte("a request")
	if n, err := w.Write(request); n != len(request) || err != nil {
		t.Errorf("write of a request to a closed connection: got %d and %v, want %d and no error", n, err, len(request))
	}
	if w.failure() == nil {
		t.Error("failure: got none, want that of the write")
	}
	if _, err := near.Read(make([]byte, 1)); err == nil {
		t.Error("read after the failed write: got no error, want that of a closed connection")
	}
}
