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
	// aliveInterval is the time after which KeepAlive checks its node. A second bridge of
	// the owner creates its node within this time.
	aliveInterval = 10 * time.Second

	// returnTime is the time within which a running process creates its node again after
	// its session was lost. Replicas have one node in common: if the replica that created
	// it ends, another one creates it within this time.
	returnTime = 2 * aliveInterval
)

// presence shows other processes that this one writes as an owner, and finds another
// process that does.
type presence struct {
	home *home
	opts *TargetOptions

	// Owned by the goroutine that checks the admission.
	aliveSince time.Time // since when another process is alive; zero: none was
	found      bool      // another process, which may return after it lost its session
	goneSince  time.Time // since when the found process is not alive; zero: it is alive, or none was found

	mu     sync.Mutex
	hidden error
}

// KeepAlive keeps the ephemeral node that shows that a bridge of the owner runs, until ctx
// ends. The node is deleted with the client's session. A failure is logged once. Hidden
// returns a failure that is a refusal.
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
			p.opts.Log.Warn("liveness node not created; other processes cannot see that this bridge runs", "err", err)
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

// Hidden returns why another bridge of the owner cannot see that this one runs, and would
// write as well; nil unless the node was refused.
func (p *presence) Hidden() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hidden
}

// setHidden keeps a refusal for Hidden. Other errors are errors of the connection, which
// the state of the client shows.
func (p *presence) setHidden(err error) {
	if !errors.Is(err, registry.ErrRefused) {
		err = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hidden = err
}

// findOther reports whether to wait until another process has ended. It returns
// ErrDuplicateProcess if that process is alive for longer than the session of a killed
// process lasts.
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
	p.goneSince = time.Time{}
	if p.aliveSince.IsZero() {
		p.aliveSince = now
		p.opts.Log.Info("another bridge of this owner may be running; writes wait until its liveness node disappears",
			"host", other.Host, "process", other.Process, "patience", patience)
	}
	// A server that replaces another gives every session its whole timeout
	// again, and closes our connection.
	if now.Sub(p.aliveSince) < patience || now.Sub(state.Since) < patience {
		return true, nil
	}
	p.found = true
	return false, fmt.Errorf("%w: owner %q is alive on host %q as process %d; %s",
		ErrDuplicateProcess, p.opts.Owner, other.Host, other.Process, p.remedy(other))
}

// awaitReturn reports whether to wait although no other process is alive: the process that
// was found may have lost its session.
func (p *presence) awaitReturn(ctx context.Context) (wait bool, err error) {
	if err := p.findReplicas(ctx); err != nil {
		return false, err
	}
	if p.found && p.goneSince.IsZero() {
		p.goneSince = time.Now()
	}
	return p.found && time.Since(p.goneSince) < returnTime, nil
}

func (p *presence) isOurs(session, current int64) bool {
	return session == current || p.opts.Ours != nil && p.opts.Ours(session)
}

// remedy returns what an operator does about another process of the owner.
func (p *presence) remedy(other aliveProcess) string {
	switch {
	case p.opts.Shared:
		return "it runs without replicas.lease: restart it with the lease"
	case other.Writes == shared:
		return "it runs with replicas.lease: stop all its replicas first, or configure the same lease here"
	default:
		return "stop that process, or configure another owner here"
	}
}

// findReplicas makes a process without a lease wait if replicas wrote last: another
// replica may be about to create the node. Once all of them have ended, it deletes their
// fence, so that their writes that are still in flight fail.
func (p *presence) findReplicas(ctx context.Context) error {
	if p.opts.Shared {
		return nil
	}
	exists, err := p.home.exists(ctx, fenceNode)
	if err != nil || !exists {
		return err
	}
	p.found = true
	if p.goneSince.IsZero() || time.Since(p.goneSince) < returnTime {
		return nil
	}
	return p.home.client.deleteTree(ctx, p.home.node(fenceNode))
}

// describeProcess returns the content of the node alive.
func (p *presence) describeProcess() string {
	host, _ := os.Hostname() // empty: an operator has to search for the process
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
		panic(err) // strings and numbers can always be encoded
	}
	return string(data)
}
