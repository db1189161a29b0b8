package debug

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A Connection to a replica is established by the first request, and replaced after one
// that did not get through: gRPC waits longer after each failure, and answers every
// request meanwhile with the error of its last attempt. One goroutine uses it.
type Connection struct {
	Dial func() (conn grpc.ClientConnInterface, release func(), err error) // see XDSOptions

	conn    grpc.ClientConnInterface // nil: none
	release func()
}

// Get returns the connection.
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

// Failed closes the connection if the error of a request says that it does not work.
func (c *Connection) Failed(err error) {
	if status.Code(err) == codes.Unavailable {
		c.Close()
	}
}

// Close closes the connection; the next Get establishes another.
func (c *Connection) Close() {
	if c.conn != nil && c.release != nil {
		c.release()
	}
	c.conn, c.release = nil, nil
}
