package zookeeper

import (
	"context"
	"errors"
	"net"
)

// A once makes a client one for a single connection. Watches are of use for
// no longer than that: after another connection everything has to be read
// anyway, and the library would first set all of them again, from a position
// in the log that it does not guard against its own reads.
//
// A nil once permits any number of connections.
type once struct {
	used   bool
	end    context.CancelCauseFunc // told of the end
	events *inbox                  // told of changes and of the loss of the connection; nil: nobody is
}

func (o *once) tell(what func(*inbox)) {
	if o != nil && o.events != nil {
		what(o.events)
	}
}

// errSpent says that the one connection of a client has ended.
var errSpent = errors.New("the connection has ended")

// use makes a connection unless there was one. The library makes one at a
// time.
func (o *once) use(connect func() (net.Conn, error)) (net.Conn, error) {
	if o == nil {
		return connect()
	}
	if o.used {
		o.end(errSpent)
		return nil, errSpent
	}
	conn, err := connect()
	o.used = err == nil
	return conn, err
}
