package keys

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// replica publishes to one replica of istiod. Its goroutine alone touches it.
type replica struct {
	p       *Publisher
	address string

	conn    grpc.ClientConnInterface // nil: none
	release func()
	streams []*stream     // that were answered
	ended   chan struct{} // one of them ended
	group   sync.WaitGroup

	shown    *publication // what the streams announce; nil if it is incomplete
	failures int          // in a row
	due      time.Time    // not before this is the next attempt
	logged   string       // the last logged error
}

func newReplica(p *Publisher, address string) *replica {
	return &replica{p: p, address: address, ended: make(chan struct{}, 1)}
}

// run announces the newest publication until ctx ends.
func (r *replica) run(ctx context.Context) {
	defer r.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		newest, replaced := r.p.latest()
		r.prune()
		if newest != nil && r.shown != newest && !time.Now().Before(r.due) {
			r.attempt(ctx, newest)
		}
		timer.Stop()
		if newest != nil && r.shown != newest {
			timer.Reset(time.Until(r.due))
		}
		select {
		case <-ctx.Done():
		case <-replaced:
		case <-r.ended:
		case <-timer.C:
		}
	}
}

// prune removes streams that ended; their keys are announced again.
func (r *replica) prune() {
	for _, s := range r.streams {
		if !s.ended() {
			continue
		}
		r.shown = nil
		if due := ads.NextStream(s.started, time.Now()); due.After(r.due) {
			r.due = due // a replica that answers and ends is not to be called at once
		}
		r.p.o.Log.Info("stream of keys ended, opening another", "replica", r.address, "err", s.err)
		r.p.o.Observe(Observation{Replica: r.address, Kind: Ended, Err: s.err})
		r.setStatus(s.err)
	}
	r.streams = slices.DeleteFunc(r.streams, (*stream).ended)
	r.closeIdle()
}

// attempt announces a publication, or sets when to try again.
func (r *replica) attempt(ctx context.Context, next *publication) {
	start := time.Now()
	opened, err := r.announce(ctx, next)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.fail(err)
		return
	}
	if r.logged != "" {
		r.p.o.Log.Info("keys published again", "replica", r.address, "keys", next.keys)
	}
	r.shown, r.failures, r.logged = next, 0, ""
	r.setStatus(nil)
	o := Observation{Replica: r.address, Kind: Announced, Keys: next.keys, Streams: len(opened), Duration: time.Since(start)}
	for _, s := range opened {
		o.Bytes += len(s.part.text)
	}
	r.p.o.Observe(o)
	r.p.o.Log.Debug("keys published", "replica", r.address, "keys", next.keys, "streams", len(opened))
}

// announce opens a stream for each part that has none. Once all were answered, it ends
// the streams of other parts. After an error the streams are those of before. It
// returns what it opened.
func (r *replica) announce(ctx context.Context, next *publication) (opened []*stream, err error) {
	if err := r.dial(); err != nil {
		return nil, err
	}
	streams := make([]*stream, 0, len(next.parts))
	for _, part := range next.parts {
		if at := slices.IndexFunc(r.streams, func(s *stream) bool { return s.part.equal(part) }); at >= 0 {
			streams = append(streams, r.streams[at])
			continue
		}
		s, err := r.open(ctx, part)
		if err != nil {
			for _, s := range opened {
				s.end()
			}
			return nil, err
		}
		opened, streams = append(opened, s), append(streams, s)
	}
	for _, s := range r.streams {
		if !slices.Contains(streams, s) {
			s.end()
		}
	}
	r.streams = streams
	return opened, nil
}

func (r *replica) fail(err error) {
	r.failures++
	delay := ads.Backoff(r.failures)
	r.due = time.Now().Add(delay)
	r.closeIdle()
	r.setStatus(err)
	r.p.o.Observe(Observation{Replica: r.address, Kind: Failed, Delay: delay, Err: err})
	if err.Error() != r.logged {
		r.logged = err.Error()
		r.p.o.Log.Warn("keys not published, what the replica has is kept", "replica", r.address, "err", err)
	}
}

func (r *replica) setStatus(err error) {
	keys := 0
	for _, s := range r.streams {
		if !s.ended() {
			keys += s.part.keys
		}
	}
	r.p.updateStatus(r.address, func(s *ReplicaStatus) {
		s.Connected, s.Keys, s.Err = len(r.streams) > 0 && r.shown != nil, keys, ""
		if err != nil {
			s.Err = err.Error()
		}
	})
}

func (r *replica) dial() error {
	if r.conn != nil {
		return nil
	}
	conn, release, err := r.p.o.Dial(r.address)
	if err != nil {
		return fmt.Errorf("keys to istiod %s: %w", r.address, err)
	}
	if release == nil {
		release = func() {}
	}
	r.conn, r.release = conn, release
	return nil
}

// closeIdle releases a connection without streams: a new one is established sooner
// than gRPC reconnects.
func (r *replica) closeIdle() {
	if r.conn != nil && len(r.streams) == 0 {
		r.release()
		r.conn, r.release = nil, nil
	}
}

// close ends every stream, waits for it and releases the connection.
func (r *replica) close() {
	for _, s := range r.streams {
		s.end()
	}
	r.group.Wait()
	r.streams = nil
	r.closeIdle()
}
