package lease

import (
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// A Gate is what one loop sees of the shards. The nil Gate is that of a loop
// which writes whatever others do.
type Gate struct {
	member  *Member
	changed chan struct{}
	reaches func() bool    // whether the loop reaches its target now; nil: it always does
	reached bool           // what that was last
	told    []bridge.Stand // by shard: what the loop was last ready for
}

// Gate returns the gate of one more loop, which is ready for nothing while it
// does not reach its target. It must not block; nil: it always reaches it.
func (m *Member) Gate(reaches func() bool) *Gate {
	return &Gate{member: m, changed: make(chan struct{}, 1), reaches: reaches, reached: true, told: make([]bridge.Stand, m.opts.Shards)}
}

// Bridge returns the gate as a loop takes it.
func (g *Gate) Bridge() *bridge.Gate {
	if g == nil {
		return nil
	}
	return &bridge.Gate{Shards: len(g.told), Stand: g.member.Stand, Changed: g.changed, Ready: g.ready}
}

// Enter makes the loop count until Leave: a shard is ready when all loops that
// do are ready for it.
func (g *Gate) Enter() {
	if g != nil {
		g.member.count(func(gates []*Gate) []*Gate { return append(gates, g) })
	}
}

// Leave makes the loop, which has ended, count no more.
func (g *Gate) Leave() {
	if g != nil {
		g.member.count(func(gates []*Gate) []*Gate {
			return slices.DeleteFunc(gates, func(o *Gate) bool { return o == g })
		})
	}
}

func (m *Member) count(change func([]*Gate) []*Gate) {
	m.mu.Lock()
	m.gates = change(m.gates)
	m.mu.Unlock()
	m.wake()
}

func (g *Gate) ready(i int, s bridge.Stand) {
	g.member.mu.Lock()
	g.told[i] = s
	g.member.mu.Unlock()
	g.member.wake()
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
	case s.Decider == m.opts.Identity && !m.yielded[i] && m.now().Before(m.until):
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
		if told := g.told[i]; !g.reached || told.Role != role || told.Term != s.Term || told.Turn != m.turns[i] {
			return false
		}
	}
	return true
}
