// Package zookeeper reads and writes entries in ZooKeeper, over go-zookeeper/zk with
// a context on every call.
//
// A Target writes the entries of its Layouts, in transactions that change no foreign
// node. A Source reports the services of its Formats to a registry.Table. Both connect
// by a Client.
//
//	target, check                       the target, and what it checks before it starts
//	write, transaction                  how it applies a change
//	read, watch_groups                  how it reads groups, and watches them for changes by others
//	identify, ledger, foreign, elements what it finds in a group: owners, keys, other formats, lists
//	layout, parents, path               how a format is stored in the tree
//
//	admit, alive, process               whether the target may write
//	fence, lease                        which replica may write
//	owners, recorder, id                what bridges store in the registry
//	ephemerals, session_fact            what holds in one session only
//	home, acl                           the nodes in which all of that is kept
//
//	source, source_check                the source, and what it checks before it starts
//	source_table                        when it reads what, and reports it
//	source_tree, source_dependencies    how it reads parents, and the documents that entries depend on
//	denied                              parents that neither may list
//
//	watch, shared                       watches over one connection
//	requests                            the requests of a client
//	client, session                     a client, and its session, which continues over several connections
//	dial, wire, wire_watch, codes       one connection, and the errors of a server
//
// Goroutines: the library's own, one for each call in flight, and those that make
// such calls in parallel; their caller waits for them. Once a group is watched, one more
// keeps the connection for that until the client is closed.
package zookeeper
