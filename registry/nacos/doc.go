// Package nacos reads and writes Nacos servers of version 2 and 3 over their gRPC
// protocol. It uses the message types of nacos-sdk-go over its own connections.
//
// The client of the SDK is not used. It reports a refused or throttled read as an empty
// list without an error, as if everything were deregistered. It opens an unauthenticated
// UDP port, writes files, keeps state for the whole process and leaks goroutines when it is
// closed.
//
// A connection of Nacos holds exactly one publication per service, and every registration
// replaces it. So a Target writes the whole set of a service in one batch, and what it
// wrote exists as long as its connection.
//
//	target, check                        the target, and what it checks before it starts
//	target_read, subscriptions           how it reads services, and watches them for changes by others
//	target_parts, target_foreign, batch  parts in configurations, other formats, what it publishes
//
//	source                               the source
//	source_reader, source_requests       its loop, and the requests that run next to the loop
//	source_scope, source_apply           what a list, an answer or a push changes
//	source_publish                       what is written to the table
//	source_watched, snapshot, inbox      the state of one service, what is reported of it, pushes
//	source_dependencies                  the documents on which instances depend
//
//	id, recorder, config                 what bridges store in configurations
//	services                             requests for services and lists
//	client, conn, server, namespace      the connection
//	login                                the access token
//	wire, errors                         messages, and the errors of a server
package nacos
