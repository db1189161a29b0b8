// Package kind connects what each kind of registry is with what the program runs. A kind
// makes the source, the connection to a target and the target itself from the settings of
// one registry. It sees nothing of the program but its Env.
//
//	kind.go           Kind, what it makes, and the list of all kinds
//	connection.go     what leads to a target, and what a target comes with
//	env.go            what a kind may see of the process
//	mesh.go           a mesh as a source, through istiod
//	mesh_check.go     preflight of that
//	mesh_target.go    a mesh as a target: the address at which istiods and data planes read
//	mesh_records.go   where what is served there is kept for a restart
//	mesh_rules.go     the file of rules for data planes
//	kubernetes.go     a mesh through the API of its cluster, as a source and a target
//	zookeeper.go      ZooKeeper
//	nacos.go          Nacos
//	documents.go      documents of Dubbo's applications that another registry stores
//	askers.go         documents that providers keep to themselves
//	alternatives.go   preflight of how else a mesh could be read or written
package kind
