// Package mesh is the source that reads an Istio mesh. It joins the clusters and endpoints
// that istiod sends over xDS with the interface mapping: one service per host address
// `fqdn:port`. It reports why something is left out, and never writes to the mesh. Neither
// silence nor a lost connection nor a partial answer means that something is gone.
//
//	options, source           the options, goroutines and status of a Source
//	joiner, update            apply the reports of the goroutines, one update at a time
//	publish, report           write the changed rows and the unknown scopes into the table
//	join, host, join_state    pure: the rows that follow from clusters, endpoints and mapping
//	cluster, assignment       the decoded resources
//	decoder, endpoint         how they are decoded, and which endpoints are left out
//
// The directories are the parts that it is made of, and the other direction:
//
//	ads, debug                the xDS client; the interface mapping from istiod's debug API
//	generator, kube           the interface mapping of ServiceEntries; a mesh read from the Kubernetes API
//	mcp, dataplane, keys      a mesh as a target: ServiceEntries, xDS for data planes, service keys
//	locate, routes            lookups of plugins: the own host address, and routing rules
//
// A Source runs three goroutines: the xDS client's, the mapping reader's, and its own,
// which waits for a change of interest. Each calls the joiner, which has a mutex and no
// goroutine.
package mesh
