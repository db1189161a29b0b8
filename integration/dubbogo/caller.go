package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance"
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance/random"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
)

// A caller makes calls and prints their results, and what they may
// choose from: it is dubbo-go's random load balancer, watched.
type caller struct {
	loadbalance.LoadBalance

	mu       sync.Mutex
	out      io.Writer
	seen     string
	answered map[string]int // by port
}

func newCaller(out io.Writer) *caller {
	return &caller{LoadBalance: random.NewRandomLoadBalance(), out: out, answered: make(map[string]int)}
}

// Select implements loadbalance.LoadBalance. While a call chooses, dubbo-go may
// destroy what it chooses from, and then its own balancers dereference a nil
// URL, whoever removed the provider: that call chooses from the others here.
func (t *caller) Select(invokers []base.Invoker, invocation base.Invocation) (chosen base.Invoker) {
	var alive []base.Invoker
	var all []string
	for _, i := range invokers {
		if u := i.GetURL(); u != nil {
			alive, all = append(alive, i), append(all, show(u))
		}
	}
	if len(alive) == 0 {
		return invokers[0]
	}
	slices.Sort(all)
	t.see(strings.Join(all, ", "))
	defer func() {
		if recover() != nil {
			chosen = alive[0]
		}
	}()
	return t.LoadBalance.Select(alive, invocation)
}

// show returns what is printed of a provider.
func show(u *common.URL) string {
	words := []string{u.Port}
	for _, key := range []string{"weight", "meshLocality", "color", "meshSubset"} {
		if v := u.GetParam(key, ""); v != "" {
			words = append(words, key+"="+v)
		}
	}
	return strings.Join(words, " ")
}

func (t *caller) see(seen string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen != seen {
		t.seen = seen
		_, _ = fmt.Fprintln(t.out, "seen", seen)
	}
}

// call calls from several goroutines until ctx ends. Calls that fail before
// the first answer are the start and not printed.
func (t *caller) call(ctx context.Context, once func(context.Context) (port string, err error)) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { every(ctx, 4*time.Millisecond, func() { t.took(once(ctx)) }) })
	}
	all.Go(func() { every(ctx, 100*time.Millisecond, t.count) })
	all.Wait()
}

// every does something again and again until ctx ends.
func every(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (t *caller) took(port string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.answered[port]++
	case len(t.answered) > 0:
		_, _ = fmt.Fprintln(t.out, "failed", strings.Join(strings.Fields(err.Error()), " "))
	}
}

func (t *caller) count() {
	t.mu.Lock()
	defer t.mu.Unlock()
	var line strings.Builder
	line.WriteString("calls")
	for _, port := range slices.Sorted(maps.Keys(t.answered)) {
		_, _ = fmt.Fprintf(&line, " %s=%d", port, t.answered[port])
	}
	_, _ = fmt.Fprintln(t.out, line.String())
}
