// Package mesh is the source that istiod is: it joins the clusters and
// endpoints that istiod sends over xDS with the interface mapping, one service
// per host address `fqdn:port`, and says of everything it leaves out why. It
// does not write to the mesh, and it never concludes that something is gone
// from silence, from a lost connection or from a partial answer.
//
// A Source runs three goroutines: the xDS client's and the mapping reader's, which join
// what they hear, one at a time, and its own, which waits for other names to be asked for.
package mesh
