// Package keys publishes the host address of each service key to istiod, as dubbo-go
// publishes its own: in the label DUBBO_GO of the node of a stream, which istiod's
// debug API shows to every consumer. So proxyless dubbo-go resolves services that are
// no client of the mesh. The package does not check the hosts.
//
// istiod reads a node at the start of a stream and shows it while the stream is open.
// So there is one connection to each replica of istiod with one stream for each node.
// Other keys require another stream; the old one ends once the new one was answered.
// By the label metadata.MarkKey of a node, a bridge's reader skips its keys.
//
// Goroutines: one that lists the replicas, one for each replica and one for each
// stream. Run waits for all of them.
package keys
