package debug

import (
	"context"
	"errors"
	"time"
)

// Listing is a result of a Lister.
type Listing struct {
	Replicas []string
	Err      error
}

// List calls list every interval, sooner after a failure, until ctx ends, and sends
// each result. An empty list is an error.
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

// Repeat calls do until ctx ends, at once and then after each returned wait.
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

func listOnce(ctx context.Context, list Lister, timeout time.Duration) Listing {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	replicas, err := list(ctx)
	if err == nil && len(replicas) == 0 {
		err = errors.New("no replica of istiod is listed")
	}
	return Listing{replicas, err}
}
