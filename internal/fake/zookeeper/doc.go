// Package zookeeper is a ZooKeeper server held in memory. It speaks the real
// protocol: sessions that expire, ephemeral nodes, versions, transactions, watches,
// digest authentication, ACLs and the limit of a packet. Tests run against it, with
// faults too: cut, delayed, denied and lost answers.
//
// It keeps nothing on disk and is one server: no quorum, no observers, no
// SASL, no sequential or TTL nodes, no watches that outlive their connection.
package zookeeper
