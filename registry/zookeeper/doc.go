// Package zookeeper keeps entries in ZooKeeper: a client over
// go-zookeeper/zk with a context on every call, and the target that writes
// what a Layout says, in transactions that leave the nodes of others alone.
//
// Goroutines: the library's own, one for each call under way, and none else.
package zookeeper
