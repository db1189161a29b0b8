package debug

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Connection is a connection to a replica. Get makes it when it is needed. Failed closes it when
// the replica is unreachable, because gRPC waits longer after each failure, and fails requests
// meanwhile. It must not be used concurrently.
type Connection struct {
	// Dial makes the connection: see XDSOptions.Dial.
	Dial func() (conn grpc.ClientConnInterface, release func(), err error)

	conn    grpc.ClientConnInterface // nil: none
	release func()                   // may be nil
}

// Get returns the connection. It fails if Dial does.
func (c *Connection) Get() (grpc.ClientConnInterface, error) {
	if c.conn != nil {
		return c.conn, nil
	}
	conn, release, err := c.Dial()
	if err != nil {
		return nil, err
	}
	c.conn, c.release = conn, release
	return conn, nil
}

// Failed closes the connection if the error of a request shows that it does not work.
func (c *Connection) Failed(err error) {
	if status.Code(err) == codes.Unavailable {
		c.Close()
	}
}

// Close closes the connection. The next Get makes another one.
func (c *Connection) Close() {
	if c.conn != nil && c.release != nil {
		c.release()
	}
	c.conn, c.release = nil, nil
}
