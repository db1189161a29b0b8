// Package keys publishes the host address of each service key to istiod, like dubbo-go does:
// in the label DUBBO_GO of a stream's node. Every consumer finds it in istiod's debug API. So
// proxyless dubbo-go resolves services that are not clients of the mesh. The package does not
// check the hosts.
//
// istiod reads the node at the start of a stream, and shows it while the stream is open. The
// Publisher therefore keeps one connection to each replica of istiod, with one stream for each
// node. Changed keys require a new stream. The old one is closed once the new one is answered.
// The label metadata.MarkKey of a node makes a bridge's reader ignore the keys.
//
//	options               which keys are published to which replicas
//	publisher             the sets of keys, and Run's goroutine
//	encoded_keys          pure: the nodes that a set of keys is encoded into
//	replica_publisher     the goroutine of one replica: its connection and retries
//	node_stream           one stream with its goroutine
//
// Run starts one goroutine that lists the replicas, one per replica and one per stream. It
// waits for all of them.
package keys
