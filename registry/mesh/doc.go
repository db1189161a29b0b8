// Package mesh is the source that reads an Istio mesh. It joins the clusters and
// endpoints that istiod sends over xDS with the interface mapping, one service per
// host address `fqdn:port`, and reports why something is left out. It does not
// write to the mesh. Neither silence nor a lost connection nor a partial answer
// means that something is gone.
//
// A Source runs three goroutines: the xDS client's, the mapping reader's, and its own,
// which waits for a change of interest. The loop joins what they report one at a time.
package mesh
