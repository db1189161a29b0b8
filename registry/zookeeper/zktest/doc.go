// Package zktest is a ZooKeeper server held in memory. It speaks the real
// protocol: sessions that expire, ephemeral and sequential nodes, versions,
// transactions, watches, digest authentication, ACLs and the limit of a
// packet. It is the registry that the demo embeds, and with its faults (cut,
// delayed, denied and lost answers) the one that tests run against.
//
// It keeps nothing on disk and is one server: no quorum, no observers, no
// SASL, no TTL nodes.
package zktest
