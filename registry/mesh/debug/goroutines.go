package debug

import (
	"context"
	"errors"
	"time"
)

// listing is what the lister found.
type listing struct {
	replicas []string
	err      error
}

// result is what the poller of a replica found.
type result struct {
	replica string
	watch   *watch
	part    *part
	at      time.Time // when the reading began
	err     error
}

// list asks for the replicas, sooner after a failure, until ctx ends.
func list(ctx context.Context, o *Options, listings chan<- listing) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		l := listOnce(ctx, o)
		select {
		case <-ctx.Done():
			return
		case listings <- l:
		}
		timer.Reset(o.Interval)
		if l.err != nil {
			timer.Reset(min(o.Interval, time.Second))
		}
	}
}

func listOnce(ctx context.Context, o *Options) listing {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	replicas, err := o.Replicas(ctx)
	if err == nil && len(replicas) == 0 {
		err = errors.New("no replica of istiod is listed")
	}
	if err != nil {
		return listing{err: &Error{Cause: NoReplicas, Where: "istiod", Err: err}}
	}
	return listing{replicas: replicas}
}

// poll reads one replica, at once and then at each interval, until ctx ends.
func poll(ctx context.Context, p *poller, w *watch, o *Options, results chan<- result) {
	defer p.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		start := time.Now()
		read, err := p.read(ctx)
		select {
		case <-ctx.Done():
			return
		case results <- result{replica: p.replica, watch: w, part: read, at: start, err: err}:
		}
		timer.Reset(o.Interval)
	}
}
