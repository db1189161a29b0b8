// Package zookeeper is a ZooKeeper server in memory. It implements the real protocol:
// sessions that expire, ephemeral nodes, versions, transactions, watches, digest
// authentication, ACLs and the size limit of a packet. Tests can make it cut
// connections, and delay, deny and lose answers.
//
// It is one server and stores nothing on disk. It has no quorum, observers, SASL,
// sequential or TTL nodes, and no watches that outlive their connection.
package zookeeper
