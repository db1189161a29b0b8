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

// replicaPublisher publishes the keys to one replica of istiod.
type replicaPublisher struct {
	// Immutable or safe for concurrent use.
	publisher   *Publisher
	address     string
	streamEnded chan struct{}  // signals that a stream may have ended
	group       sync.WaitGroup // the goroutines of streams

	// Owned by the goroutine of run.
	conn        grpc.ClientConnInterface // nil: none
	release     func()                   // of conn
	streams     []*nodeStream            // the answered ones
	announced   *encodedKeys             // the keys that streams announce; nil: not all of a set
	failures    int                      // in a row
	nextAttempt time.Time
	loggedErr   string // the last logged error; empty after a success
}

func newReplicaPublisher(p *Publisher, address string) *replicaPublisher {
	return &replicaPublisher{publisher: p, address: address, streamEnded: make(chan struct{}, 1)}
}

// run announces the newest publication until ctx ends.
func (r *replicaPublisher) run(ctx context.Context) {
	defer r.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		newest, replaced := r.publisher.latest()
		r.prune()
		if newest != nil && r.announced != newest && !time.Now().Before(r.nextAttempt) {
			r.attempt(ctx, newest)
		}
		timer.Stop()
		if newest != nil && r.announced != newest {
			timer.Reset(time.Until(r.nextAttempt))
		}
		select {
		case <-ctx.Done():
		case <-replaced:
		case <-r.streamEnded:
		case <-timer.C:
		}
	}
}

// prune removes the streams that have ended. Their keys will be announced again.
func (r *replicaPublisher) prune() {
	for _, s := range r.streams {
		if !s.ended() {
			continue
		}
		r.announced = nil
		if next := ads.NextStream(s.started, time.Now()); next.After(r.nextAttempt) {
			r.nextAttempt = next // a replica that ends streams at once must not be called in a loop
		}
		r.publisher.o.Log.Info("keys stream ended, reconnecting", "replica", r.address, "err", s.err)
		r.publisher.o.Observe(Observation{Replica: r.address, Kind: Ended, Err: s.err})
		r.setStatus(s.err)
	}
	r.streams = slices.DeleteFunc(r.streams, (*nodeStream).ended)
	r.closeIdle()
}

// attempt announces the keys, or schedules a retry.
func (r *replicaPublisher) attempt(ctx context.Context, next *encodedKeys) {
	start := time.Now()
	opened, err := r.announce(ctx, next)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.scheduleRetry(err)
		return
	}
	if r.loggedErr != "" {
		r.publisher.o.Log.Info("keys published again", "replica", r.address, "keys", next.keys)
	}
	r.announced, r.failures, r.loggedErr = next, 0, ""
	r.setStatus(nil)
	o := Observation{
		Replica: r.address, Kind: Announced,
		Keys: next.keys, Streams: len(opened), Duration: time.Since(start),
	}
	for _, s := range opened {
		o.Bytes += len(s.keys.text)
	}
	r.publisher.o.Observe(o)
	r.publisher.o.Log.Debug("keys published", "replica", r.address, "keys", next.keys, "streams", len(opened))
}

// announce opens a stream for each node that has none with its keys. Once all are answered, it
// closes the other streams. It returns the opened streams. If it fails, the streams stay as
// they were.
func (r *replicaPublisher) announce(ctx context.Context, next *encodedKeys) (opened []*nodeStream, err error) {
	if err := r.dial(); err != nil {
		return nil, err
	}
	streams := make([]*nodeStream, 0, len(next.nodes))
	for _, part := range next.nodes {
		if at := slices.IndexFunc(r.streams, func(s *nodeStream) bool { return s.keys.equal(part) }); at >= 0 {
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

// scheduleRetry records, reports and logs a failure, and sets when to retry.
func (r *replicaPublisher) scheduleRetry(err error) {
	r.failures++
	delay := ads.Backoff(r.failures)
	r.nextAttempt = time.Now().Add(delay)
	r.closeIdle()
	r.setStatus(err)
	r.publisher.o.Observe(Observation{Replica: r.address, Kind: Failed, Delay: delay, Err: err})
	if err.Error() != r.loggedErr {
		r.loggedErr = err.Error()
		r.publisher.o.Log.Warn("cannot publish keys, the replica keeps the published ones", "replica", r.address, "err", err)
	}
}

// setStatus updates the status of the replica.
func (r *replicaPublisher) setStatus(err error) {
	keys := 0
	for _, s := range r.streams {
		if !s.ended() {
			keys += s.keys.keys
		}
	}
	r.publisher.updateStatus(r.address, func(s *ReplicaStatus) {
		s.Connected, s.Keys, s.Err = len(r.streams) > 0 && r.announced != nil, keys, ""
		if err != nil {
			s.Err = err.Error()
		}
	})
}

// dial makes the connection, unless there is one.
func (r *replicaPublisher) dial() error {
	if r.conn != nil {
		return nil
	}
	conn, release, err := r.publisher.o.Dial(r.address)
	if err != nil {
		return fmt.Errorf("keys to istiod %s: %w", r.address, err)
	}
	if release == nil {
		release = func() {}
	}
	r.conn, r.release = conn, release
	return nil
}

// closeIdle releases a connection without streams. A new connection is established faster than
// gRPC reconnects.
func (r *replicaPublisher) closeIdle() {
	if r.conn != nil && len(r.streams) == 0 {
		r.release()
		r.conn, r.release = nil, nil
	}
}

// close closes every stream, waits for its goroutine, and releases the connection.
func (r *replicaPublisher) close() {
	for _, s := range r.streams {
		s.end()
	}
	r.group.Wait()
	r.streams = nil
	r.closeIdle()
}
