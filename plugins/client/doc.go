// Package client is a registry as an application uses it: it provides instances
// and finds those of others, in the mesh, in ZooKeeper or in Nacos, under the
// same names and in the same formats as the bridge. The plugins of RPC
// frameworks are thin adapters of it.
//
// A Client owns what it starts, and Close ends all of it; several may live in
// one process and share nothing. No method but those that say so waits for the
// network, and none gives up: a registry that is down at the start is connected
// to once it is there. What is known stays known while a registry is away:
// nothing that was offered disappears because nobody could be asked.
package client
