package nacos

import (
	"maps"
	"slices"
	"strconv"

	"github.com/nacos-group/nacos-sdk-go/v2/model"
)

// Push is a message to the subscribers of a service. As on a real server, the message does not
// contain the namespace.
type Push struct {
	Service Service
	Info    model.Service
}

// ReplacePushes sets a function that replaces each push: by none to lose it, by several to repeat
// it. Nil ends the replacement. The function must not call the server.
func (s *Server) ReplacePushes(f func(Push) []Push) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace = f
}

// Send sends a push to the subscribers of its service, whatever the server stores.
func (s *Server) Send(p Push) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Service = p.Service.public()
	s.deliver(p)
}

// Subscriptions returns the number of subscriptions of all clients.
func (s *Server) Subscriptions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.conns {
		n += len(c.subscribed)
	}
	return n
}

// Unsubscribe drops every subscription and keeps the connections, like a server that lost the state
// of its clients.
func (s *Server) Unsubscribe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		clear(c.subscribed)
	}
}

// notify pushes a service to its subscribers. As on a real server, pushes include disabled
// instances. The caller holds mu.
func (s *Server) notify(sv Service) {
	p := Push{Service: sv, Info: *s.info(sv, s.hosts(sv))}
	if s.replace == nil {
		s.deliver(p)
		return
	}
	for _, q := range s.replace(p) {
		s.deliver(q)
	}
}

// deliver sends a push to each subscriber, in the order of calls. The caller holds mu.
func (s *Server) deliver(p Push) {
	for _, id := range slices.Sorted(maps.Keys(s.conns)) {
		c := s.conns[id]
		if !c.subscribed[p.Service] {
			continue
		}
		body := map[string]any{"requestId": strconv.FormatInt(s.next.Add(1), 10), "serviceInfo": p.Info}
		last, done := c.sent, make(chan struct{})
		c.sent = done
		go func() { // ends with the stream
			defer close(done)
			if last != nil {
				<-last
			}
			c.push("NotifySubscriberRequest", body)
		}()
	}
}
