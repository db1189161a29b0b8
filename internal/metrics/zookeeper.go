package metrics

import "github.com/xds-bridge/xds-bridge/registry/zookeeper"

// ZooKeeper returns a sink for the states of the connection over which a
// ZooKeeper is written to. Peer is the registry's name in the configuration.
func (m *Metrics) ZooKeeper(peer string) func(zookeeper.State) {
	const kind, direction = "zookeeper", "target"
	up := m.target.up.WithLabelValues(peer, kind, direction)
	reconnects := m.stream.reconnects.WithLabelValues(peer, kind, direction)
	var before zookeeper.State
	return func(s zookeeper.State) {
		up.Set(0)
		if s.Connected {
			up.Set(1)
		}
		if s.Connected && !before.Connected && before.Session != 0 {
			reconnects.Inc()
		}
		before = s
	}
}
