package istiod

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The errors with which istiod rejects streams.
var (
	ErrNotReady  = status.Error(codes.Unavailable, "server is not ready to serve discovery information")
	ErrRateLimit = status.Error(codes.ResourceExhausted, "request rate limit exceeded: rate: Wait(n=1) would exceed context deadline")
)

// Authorizer returns an error if it rejects the credentials of a stream. A token is in the metadata
// of ctx, a certificate in its peer.
type Authorizer func(ctx context.Context) error

// Debugger answers requests for istio.io/debug. The name is adsz or syncz, for example, and may have
// a query. An error ends the stream.
type Debugger func(ctx context.Context, name string) ([]byte, error)

// faults are the failures that are in effect.
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

// Authorize sets the authorizer of new streams; nil admits every stream.
func (s *Server) Authorize(a Authorizer) { s.change(func() { s.authorize = a }) }

// Debug sets the debugger that answers debug requests. Without one they fail as unauthenticated, as
// over plaintext.
func (s *Server) Debug(d Debugger) { s.change(func() { s.debug = d }) }

// Refuse rejects every new stream with an error; nil ends that.
func (s *Server) Refuse(err error) { s.change(func() { s.faults.refuse = err }) }

// WithoutDelta makes the server one that does not implement delta.
func (s *Server) WithoutDelta() { s.change(func() { s.faults.withoutDelta = true }) }

// Mute makes the server send nothing more of some types; without types, nothing at all.
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

// Withhold leaves resources out of every answer, like an istiod that does not know them yet. Without
// names, nothing is left out. A call pushes nothing.
func (s *Server) Withhold(typeURL string, names ...string) {
	s.change(func() {
		if s.faults.withheld == nil {
			s.faults.withheld = map[string]map[string]struct{}{}
		}
		s.faults.withheld[typeURL] = set(names)
	})
}

// Alter sets a function that changes every answer before it is sent, for example to garbage,
// duplicates or other versions; nil: none. The function must not call the server, which is locked.
func (s *Server) Alter(f func(*Answer)) { s.change(func() { s.faults.alter = f }) }

// Drop ends every stream with an error; nil ends them without one.
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
