// Package zookeeper reads and writes entries in ZooKeeper, over go-zookeeper/zk with
// a context on every call.
//
// A Target writes the entries of its Layouts, in transactions that change no foreign
// node. A Source reports the services of its Formats to a registry.Table.
//
//	target, layout, read, ownership, write, transaction, watch    the target
//	watch_groups                                                  what others do to it
//	home, admit, alive                                            the nodes that bridges keep for themselves
//	source, source_tree, source_table, source_dependencies        the source
//	client, requests, dial, wire                                  the connection
//
// Goroutines: the library's own, one for each call in flight, and those that make
// such calls in parallel; their caller waits for them. Once a group is watched, one more
// keeps the connection for that until the client is closed.
package zookeeper
