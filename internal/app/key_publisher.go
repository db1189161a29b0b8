package app

import (
	"context"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/registry/mesh/keys"
)

// A keyPublisher publishes the service keys of all hosts that are imported into
// a mesh, whichever target they come by, at every replica of its istiod.
type keyPublisher struct {
	mesh     string
	key      string // of all that it depends on
	election *election
	*keys.Publisher
}

func (p *keyPublisher) run(ctx context.Context) error {
	return wrap("keys of "+p.mesh, publishKeys(ctx, p.election, p.Publisher))
}

// publishKeys keeps keys published while this replica leads, and then until its successor
// publishes them.
func publishKeys(ctx context.Context, e *election, p *keys.Publisher) error {
	if e == nil {
		return p.Run(ctx)
	}
	e.Ready(bridge.Leadership{})
	k := keyLeader{election: e, publisher: p, failed: make(chan error, 1)}
	defer k.stop()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-k.failed:
			return err
		case <-e.Changed():
		case <-ticker.C:
		}
		k.look(ctx)
	}
}

// A keyLeader runs the publisher of keys while this replica leads.
type keyLeader struct {
	election  *election
	publisher *keys.Publisher
	running   *task // nil while nothing is published
	failed    chan error
	lostAt    time.Time // when another led; zero while this one does
	reported  bridge.Leadership
}

// overlap is how long keys stay published after another replica leads.
const overlap = 5 * time.Second

func (k *keyLeader) look(ctx context.Context) {
	now, l := time.Now(), k.election.Leadership()
	l.Until = time.Time{} // it moves with every renewal
	switch {
	case l.Role == bridge.RoleLeader:
		k.lostAt = time.Time{}
		if k.running == nil {
			k.running = startTask(ctx, k.failed, k.publisher.Run)
		}
	case k.lostAt.IsZero():
		k.lostAt = now
	case now.Sub(k.lostAt) > overlap:
		k.stop()
	}
	if l != k.reported && (l.Role == bridge.RoleStandby || k.isShown()) {
		k.reported = l
		k.election.Ready(l)
	}
}

// isShown reports whether every istiod shows the keys.
func (k *keyLeader) isShown() bool {
	s := k.publisher.Status()
	for _, r := range s.Replicas {
		if !r.Connected {
			return false
		}
	}
	return k.running != nil && len(s.Replicas) > 0
}

func (k *keyLeader) stop() {
	if k.running != nil {
		k.running.stop()
		k.running = nil
	}
}
