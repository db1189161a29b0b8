// Package keys publishes to istiod which service key lives at which host
// address, as dubbo-go does of its own services: in the label DUBBO_GO of the
// node of a stream, which istiod's debug API shows to every consumer. So
// proxyless dubbo-go resolves services that are no client of the mesh. What the
// hosts are and whether they are served is not its business.
//
// istiod reads a node at the start of a stream alone and shows it for as long as
// the stream lives. So there is one connection to each replica of istiod and one
// stream on it for each node; other keys are another stream, and the old one
// ends once the new one was answered. A node carries the label
// metadata.MarkKey, by which a bridge's own reader skips its keys.
//
// Goroutines: one that lists the replicas, one for each replica and one for each
// stream. Run waits for all of them.
package keys
