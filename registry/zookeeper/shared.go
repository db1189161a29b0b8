package zookeeper

import (
	"context"
	"errors"
	"time"
)

// A follower receives the events of a connection that several users share.
type follower struct {
	events *watchEvents
	end    context.CancelCauseFunc // called when the connection is lost
	state  func(State)             // called with every change of the state; it must not block
}

var errLost = errors.New("the connection was lost")

// share returns a watcher over a client that others use as well, and a function that ends
// it. Its watches end with the connection, because the client makes the next connection
// without them. So that the server keeps none of them, end closes the connection if the
// caller passes that it is still connected.
func share(c *Client, f *follower) (w *watcher, end func(connected bool)) {
	c.mu.Lock()
	c.follower = f
	c.mu.Unlock()
	return &watcher{c, f.events}, func(connected bool) {
		if connected && c.State().Connected {
			c.closeWire()
			c.awaitLoss()
		}
		c.mu.Lock()
		c.follower = nil
		c.mu.Unlock()
	}
}

// awaitLoss waits until the library has noticed that the connection is closed, a second at
// most.
func (s *session) awaitLoss() {
	s.mu.Lock()
	lost := s.notConnected
	s.mu.Unlock()
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-lost:
	case <-timer.C:
	}
}

// notify calls a function with the follower, if there is one.
func (s *session) notify(event func(*follower)) {
	s.mu.Lock()
	f := s.follower
	s.mu.Unlock()
	if f != nil {
		event(f)
	}
}

// observe reports a state of the session.
func (s *session) observe(state State) {
	s.opts.Observe(state)
	s.notify(func(f *follower) { f.state(state) })
}
