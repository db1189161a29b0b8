package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

const (
	// aliveInterval is the time after which KeepAlive checks its node. A second bridge
	// of the owner creates its own within it.
	aliveInterval = 10 * time.Second

	// returnTime is the time within which a running process creates its node anew after
	// its session was lost, and a replica after the one whose node showed all of them.
	returnTime = 2 * aliveInterval
)

// presence shows other processes that this one writes as an owner, and finds
// another one that does.
type presence struct {
	home *home
	opts *TargetOptions

	// Only the goroutine that asks for admission touches these.
	seen   time.Time // since when another process is alive; zero: none was
	missed time.Time // since when the one that was found is not alive; zero: it is, or none was found
	found  bool      // another process, which may come back after it lost its session

	mu     sync.Mutex
	hidden error
}

// KeepAlive keeps the ephemeral node that shows that a bridge of the owner runs,
// until ctx ends; the node goes with the client's session. A failure is logged
// once, and Hidden returns one that is a refusal.
func (p *presence) KeepAlive(ctx context.Context) {
	client := p.home.client
	lost, stop := client.onLost()
	defer stop()
	ticker := time.NewTicker(aliveInterval)
	defer ticker.Stop()
	failed := false
	for {
		err := client.createAll(ctx, p.home.request(aliveNode, p.describeProcess(), zk.FlagEphemeral))
		if err != nil && !failed && ctx.Err() == nil {
			p.opts.Log.Warn("cannot show other processes that this bridge runs", "err", err)
		}
		failed = err != nil
		p.setHidden(err)
		select {
		case <-ctx.Done():
			return
		case <-lost:
		case <-ticker.C:
		}
	}
}

// Hidden returns why another bridge of the owner cannot see that this one runs, and
// would write as well; nil unless the node was refused.
func (p *presence) Hidden() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hidden
}

// setHidden records a refusal. An error of the connection ends with it, and the
// state of the client shows it.
func (p *presence) setHidden(err error) {
	if !errors.Is(err, registry.ErrRefused) {
		err = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hidden = err
}

// findOther reports whether to wait until another process has ended. It returns
// ErrDuplicateProcess if that is alive for longer than the session of a killed one.
func (p *presence) findOther(ctx context.Context) (wait bool, err error) {
	n, err := p.home.client.read(ctx, p.home.node(aliveNode))
	if err != nil {
		return false, err
	}
	if n.stat == nil {
		return p.awaitReturn(ctx)
	}
	other, state := parseAlive(n.data), p.home.client.State()
	if p.isOurs(n.stat.EphemeralOwner, state.Session) || other.ended() || p.opts.Shared && other.Writes != alone {
		return false, nil
	}
	now, patience := time.Now(), max(other.Timeout, state.Timeout)+aliveInterval/2
	p.missed = time.Time{}
	if p.seen.IsZero() {
		p.seen = now
		p.opts.Log.Info("another bridge of this owner may be running; nothing is written before its liveness node goes",
			"host", other.Host, "process", other.Process, "patience", patience)
	}
	// A server that replaces another gives every session its whole timeout
	// again, and closes our connection.
	if now.Sub(p.seen) < patience || now.Sub(state.Since) < patience {
		return true, nil
	}
	p.found = true
	return false, fmt.Errorf("%w: owner %q is alive on host %q as process %d; %s",
		ErrDuplicateProcess, p.opts.Owner, other.Host, other.Process, p.remedy(other))
}

// awaitReturn reports whether to wait though no other process is alive: one that was found
// may have lost its session.
func (p *presence) awaitReturn(ctx context.Context) (wait bool, err error) {
	if err := p.findReplicas(ctx); err != nil {
		return false, err
	}
	if p.found && p.missed.IsZero() {
		p.missed = time.Now()
	}
	return p.found && time.Since(p.missed) < returnTime, nil
}

func (p *presence) isOurs(session, current int64) bool {
	return session == current || p.opts.Ours != nil && p.opts.Ours(session)
}

// remedy returns what a person does about another process of the owner.
func (p *presence) remedy(other aliveProcess) string {
	switch {
	case p.opts.Shared:
		return "it runs without replicas.lease: end it, and start it again with the lease"
	case other.Writes == shared:
		return "it runs with replicas.lease: end all replicas first, or give this one the same lease"
	default:
		return "stop that one, or give this one another owner"
	}
}

// findReplicas makes a process without a lease wait if replicas wrote last: the
// next of them may be about to create its node. Once they are gone it deletes
// their fence, so that writes of theirs that are in flight fail.
func (p *presence) findReplicas(ctx context.Context) error {
	if p.opts.Shared {
		return nil
	}
	exists, err := p.home.exists(ctx, fenceNode)
	if err != nil || !exists {
		return err
	}
	p.found = true
	if p.missed.IsZero() || time.Since(p.missed) < returnTime {
		return nil
	}
	return p.home.client.deleteTree(ctx, p.home.node(fenceNode))
}

func (p *presence) describeProcess() string {
	host, _ := os.Hostname() // without it the process cannot be found by a person
	pid := os.Getpid()
	r := aliveProcess{
		Host: host, Process: pid, System: system(), Started: started(pid),
		Timeout: p.home.client.State().Timeout, Writes: alone,
	}
	if p.opts.Shared {
		r.Writes = shared
	}
	data, err := json.Marshal(r)
	if err != nil {
		panic(err) // of strings and numbers alone
	}
	return string(data)
}
