package istiod

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What istiod refuses streams with.
var (
	ErrNotReady  = status.Error(codes.Unavailable, "server is not ready to serve discovery information")
	ErrRateLimit = status.Error(codes.ResourceExhausted, "request rate limit exceeded: rate: Wait(n=1) would exceed context deadline")
)

// Authorizer refuses a stream by its credentials: a token is in the metadata of
// ctx, a certificate in its peer.
type Authorizer func(ctx context.Context) error

// Debugger answers istio.io/debug: name is adsz, syncz and so on and may carry a
// query. An error ends the stream.
type Debugger func(ctx context.Context, name string) ([]byte, error)

// faults is what goes wrong now.
type faults struct {
	refuse       error
	withoutDelta bool
	muted        map[string]struct{}
	withheld     map[string]map[string]struct{}
	alter        func(*Answer)
}

func (f faults) mute(typeURL string) bool {
	_, all := f.muted[""]
	_, one := f.muted[typeURL]
	return all || one
}

// Authorize has every new stream judged; nil admits everybody.
func (s *Server) Authorize(a Authorizer) { s.change(func() { s.authorize = a }) }

// Debug has debug requests answered; without it they are unauthenticated, as
// over plaintext.
func (s *Server) Debug(d Debugger) { s.change(func() { s.debug = d }) }

// Refuse ends every new stream with err, until it is called with nil.
func (s *Server) Refuse(err error) { s.change(func() { s.faults.refuse = err }) }

// WithoutDelta makes the server one that does not know delta.
func (s *Server) WithoutDelta() { s.change(func() { s.faults.withoutDelta = true }) }

// Mute makes the server say nothing about types any more, about nothing at all
// if none is given.
func (s *Server) Mute(types ...string) {
	if len(types) == 0 {
		types = []string{""}
	}
	s.change(func() { s.faults.muted = set(types) })
}

// Unmute ends Mute and sends everything.
func (s *Server) Unmute() {
	s.change(func() { s.faults.muted = nil })
	s.Push()
}

// Withhold leaves resources out of every answer, as an istiod does that has not
// learned of them yet. No names end it; nothing is pushed by either.
func (s *Server) Withhold(typeURL string, names ...string) {
	s.change(func() {
		if s.faults.withheld == nil {
			s.faults.withheld = map[string]map[string]struct{}{}
		}
		s.faults.withheld[typeURL] = set(names)
	})
}

// Alter has every answer changed before it is sent: garbage, duplicates, other
// versions. It is called with the server locked and must not call it. Nil ends
// it.
func (s *Server) Alter(f func(*Answer)) { s.change(func() { s.faults.alter = f }) }

// Drop ends every stream with err; nil closes them without one.
func (s *Server) Drop(err error) {
	s.change(func() {
		for c := range s.connections {
			select {
			case c.ended <- err:
			default:
			}
		}
	})
}

func (s *Server) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}
