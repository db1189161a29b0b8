package debug

import (
	"context"
	"errors"
	"time"
)

// Listing is the result of a Lister.
type Listing struct {
	Replicas []string
	Err      error
}

// List calls list every interval until ctx ends, and sends each result. After a failure it
// waits at most a second. An empty list is an error.
func List(ctx context.Context, list Lister, interval, timeout time.Duration, listings chan<- Listing) {
	Repeat(ctx, func() time.Duration {
		l := listOnce(ctx, list, timeout)
		select {
		case <-ctx.Done():
		case listings <- l:
		}
		if l.Err != nil {
			return min(interval, time.Second)
		}
		return interval
	})
}

// Repeat calls do at once, and then after each returned wait, until ctx ends.
func Repeat(ctx context.Context, do func() (wait time.Duration)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(do())
		}
	}
}

// listOnce calls list with a timeout.
func listOnce(ctx context.Context, list Lister, timeout time.Duration) Listing {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	replicas, err := list(ctx)
	if err == nil && len(replicas) == 0 {
		err = errors.New("no replicas of istiod listed")
	}
	return Listing{replicas, err}
}
