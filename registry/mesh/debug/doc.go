// Package debug reads the host of each service key from istiod's debug API. It reads
// the keys that the clients of every istiod replica publish in their node metadata, over HTTP
// or over xDS, and merges them. It never makes istiod push. A key is gone only after its end was
// observed.
//
//	options                   where and how the mapping is read
//	reader, replica           Run's goroutine: it starts pollers and merges what they read
//	poller                    the goroutine of one replica: which clients it reads, and how often
//	listers, listing          which replicas there are
//	client_list               the decoder of istiod's responses
//	claims                    pure: which client claims which key, and when a claim ends
//	snapshot                  the mapping and its reliability, as reported
//	http, xds, connection     the two transports
//	error                     causes of failures, and their remedies
//
// Run starts one goroutine that lists the replicas, and one per replica that reads it. It
// waits for all of them.
package debug
