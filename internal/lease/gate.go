package lease

import (
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// A gate is what one loop sees of the shards.
type gate struct {
	changed chan struct{}
	told    []bridge.Stand // by shard: what the loop was last ready for
}

// Gate returns the gate of one more loop. A shard is ready when all loops are
// ready for it.
func (m *Member) Gate() *bridge.Gate {
	g := &gate{changed: make(chan struct{}, 1), told: make([]bridge.Stand, m.opts.Shards)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gates = append(m.gates, g)
	return &bridge.Gate{
		Shards: m.opts.Shards, Stand: m.Stand, Changed: g.changed,
		Ready: func(i int, s bridge.Stand) {
			m.mu.Lock()
			g.told[i] = s
			m.mu.Unlock()
			m.wake()
		},
	}
}

// Stand returns what this replica is to a shard at this moment.
func (m *Member) Stand(i int) bridge.Stand {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stand(i)
}

// stand is Stand with the lock held.
func (m *Member) stand(i int) bridge.Stand {
	s := m.table.Shards[i]
	out := bridge.Stand{Role: bridge.RoleAway, Term: s.Term, Turn: m.turns[i], Decider: s.Decider}
	switch {
	case s.Decider == m.opts.Identity && !m.yielded[i] && time.Now().Before(m.until):
		out.Role, out.Until = bridge.RoleDecider, m.until
	case m.holding[i]:
		out.Role = bridge.RoleWarm
	}
	return out
}

// signal tells every gate to look where a stand is another than was shown. The
// lock is held.
func (m *Member) signal() {
	same := true
	for i := range m.shown {
		now := m.stand(i)
		now.Until = time.Time{} // it moves with every renewal
		same = same && m.shown[i] == now
		m.shown[i] = now
	}
	if same {
		return
	}
	for _, g := range m.gates {
		select {
		case g.changed <- struct{}{}:
		default:
		}
	}
}

// readyFor reports whether every loop is ready for our part in a shard. The
// lock is held.
func (m *Member) readyFor(i int, s shard) bool {
	role := bridge.RoleWarm
	if s.Decider == m.opts.Identity {
		role = bridge.RoleDecider
	}
	for _, g := range m.gates {
		if told := g.told[i]; told.Role != role || told.Term != s.Term || told.Turn != m.turns[i] {
			return false
		}
	}
	return true
}
