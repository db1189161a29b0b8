// Package kind adapts each kind of registry to the program. From the settings of one
// registry, a kind makes the source, the connection to a target, and the target. A kind
// sees only its Env of the program.
//
//	kind.go           Kind, its parts, and the list of all kinds
//	connection.go     the connection to a target, and the parts of a target
//	env.go            the parts of the process that a kind may see
//	mesh.go           a mesh as a source, through istiod
//	mesh_check.go     preflight checks of a mesh as a source
//	mesh_target.go    a mesh as a target: the address that istiods and data planes read
//	mesh_records.go   the records of served resources, for a restart
//	mesh_rules.go     the file of rules for data planes
//	kubernetes.go     a mesh through the API of its cluster, as a source and a target
//	zookeeper.go      ZooKeeper
//	nacos.go          Nacos
//	documents.go      documents of Dubbo applications that another registry stores
//	askers.go         documents that only their providers have
//	alternatives.go   preflight checks of other ways to read or write a mesh
package kind
