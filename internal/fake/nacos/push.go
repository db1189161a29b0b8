package nacos

import (
	"maps"
	"slices"
	"strconv"

	"github.com/nacos-group/nacos-sdk-go/v2/model"
)

// Push is what the server sends to the subscribers of a service without a request. As with a real one the namespace is not in it.
type Push struct {
	Service Service
	Info    model.Service
}

// ReplacePushes makes a function decide what is sent in the place of each push: nothing
// if it is to be lost, several if it is to be repeated; nil ends that.
// It must not call the server.
func (s *Server) ReplacePushes(f func(Push) []Push) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace = f
}

// Send pushes something to the subscribers of its service, whatever is true.
func (s *Server) Send(p Push) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Service = p.Service.public()
	s.deliver(p)
}

// Subscriptions returns how many services are subscribed, over all clients.
func (s *Server) Subscriptions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.conns {
		n += len(c.subscribed)
	}
	return n
}

// Unsubscribe makes the server forget every subscription, as one does that
// lost its clients but for their connections.
func (s *Server) Unsubscribe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		clear(c.subscribed)
	}
}

// notify sends to the subscribers of a service what it holds; pushes show
// instances that are not enabled, as a real server's do. The caller holds mu.
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

// deliver sends a push in the order of its calls. The caller holds mu.
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
