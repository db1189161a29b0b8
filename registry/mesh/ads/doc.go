// Package ads is the xDS client. It requests resources of any type from one management
// server (istiod, or any other with aggregated discovery) and reports changes to
// subscribers. It speaks the delta variant of the protocol, or state of the world if the
// server implements no other. It does not interpret resources.
//
// Resources are kept while the server is unreachable: neither silence nor a broken
// connection means that a resource is gone.
//
//	client, options, task_queue       the API of the package, and the tasks that it passes to Run's goroutine
//	state, observation, errors        the state, events and errors that the client reports about itself
//	subscription, event_builder       subscriptions and the events that their handlers get
//	client_loop, stream_lifecycle     Run's goroutine: its select statement, and how streams begin and end
//	subscribed_type, cached_type      one resource type: the requested names, and the known resources
//	parsed_response, apply_response   how a response is decoded, and how it changes the known resources
//	type_stream                       one resource type on one stream: requests, ACK, NACK and timeouts
//	ads_stream, wire                  one stream: its goroutines, and the messages of both variants
//	connector, dial, backoff          connections, which address they prefer, and the waits between them
//	credentials, node                 TLS, the token, and the identity of the client
//	digest                            how unchanged resources are recognized
//
// Run's goroutine calls every handler and owns all state but sharedState and taskQueue.
// Each stream has two more goroutines: one receives and one sends, so that neither
// direction blocks the other. To decode a large response, Run's goroutine starts up to one
// goroutine per processor, and waits for them.
package ads
