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

const (
	backoffBase = time.Second
	backoffCap  = 30 * time.Second
)

// replica publishes to one replica of istiod. Its goroutine alone touches it.
type replica struct {
	p       *Publisher
	address string

	conn    grpc.ClientConnInterface // nil: none
	release func()
	streams []*stream     // that were answered
	broken  chan struct{} // one of them ended
	group   sync.WaitGroup

	shown    *publication // what the streams announce; nil if it is not all of one
	failures int          // in a row
	due      time.Time    // not before this is anything announced
	logged   string       // the error that was logged last
}

func newReplica(p *Publisher, address string) *replica {
	return &replica{p: p, address: address, broken: make(chan struct{}, 1)}
}

// run announces whatever is newest until ctx ends.
func (r *replica) run(ctx context.Context) {
	defer r.leave()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		newest, newer := r.p.latest()
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
		case <-newer:
		case <-r.broken:
		case <-timer.C:
		}
	}
}

// prune forgets streams that ended; what they announced is announced again.
func (r *replica) prune() {
	for _, s := range r.streams {
		if !s.ended() {
			continue
		}
		r.shown = nil
		if due := backoff().Again(s.started, time.Now()); due.After(r.due) {
			r.due = due // a replica that answers and ends must not be pressed
		}
		r.p.o.Log.Info("stream of keys ended, opening another", "replica", r.address, "err", s.err)
		r.p.o.Observe(Observation{Replica: r.address, Kind: Ended, Err: s.err})
		r.note(s.err)
	}
	r.streams = slices.DeleteFunc(r.streams, (*stream).ended)
	r.hangUp()
}

// attempt announces a publication, or notes when to try again.
func (r *replica) attempt(ctx context.Context, next *publication) {
	start := time.Now()
	opened, err := r.announce(ctx, next)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.failed(err)
		return
	}
	r.shown, r.failures, r.logged = next, 0, ""
	r.note(nil)
	o := Observation{Replica: r.address, Kind: Announced, Keys: next.keys, Streams: len(opened), Duration: time.Since(start)}
	for _, s := range opened {
		o.Bytes += len(s.part.text)
	}
	r.p.o.Observe(o)
	r.p.o.Log.Debug("keys published", "replica", r.address, "keys", next.keys, "streams", len(opened))
}

// announce opens a stream for each part that has none, and then, once all were
// answered, ends those whose part has changed. After an error the streams are
// those of before. It returns what it opened.
func (r *replica) announce(ctx context.Context, next *publication) (opened []*stream, err error) {
	if err := r.dial(); err != nil {
		return nil, err
	}
	streams := make([]*stream, 0, len(next.parts))
	for _, part := range next.parts {
		if at := slices.IndexFunc(r.streams, func(s *stream) bool { return s.part.same(part) }); at >= 0 {
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

func backoff() ads.Backoff { return ads.Backoff{Base: backoffBase, Cap: backoffCap} }

func (r *replica) failed(err error) {
	r.failures++
	delay := backoff().After(r.failures)
	r.due = time.Now().Add(delay)
	r.hangUp()
	r.note(err)
	r.p.o.Observe(Observation{Replica: r.address, Kind: Failed, Delay: delay, Err: err})
	if err.Error() != r.logged {
		r.logged = err.Error()
		r.p.o.Log.Warn("keys not published, what the replica shows stays", "replica", r.address, "err", err)
	}
}

// note reports how the replica stands.
func (r *replica) note(err error) {
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

// hangUp gives a connection back that carries no stream: another one does not
// wait as long as gRPC lets this one wait.
func (r *replica) hangUp() {
	if r.conn != nil && len(r.streams) == 0 {
		r.release()
		r.conn, r.release = nil, nil
	}
}

// leave ends every stream, waits for it and gives the connection back.
func (r *replica) leave() {
	for _, s := range r.streams {
		s.end()
	}
	r.group.Wait()
	r.streams = nil
	r.hangUp()
}
