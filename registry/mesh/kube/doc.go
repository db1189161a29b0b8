// Package kube reads the mesh from the Kubernetes API instead of from istiod:
// Services with their EndpointSlices, Pods and Nodes, and Istio's ServiceEntries
// and WorkloadEntries. It makes the clusters of them that istiod would make, and
// learns service keys from annotations and labels. It never writes, and takes
// nothing for gone that it could not see go.
//
// World is what follows from the objects, and does no I/O. A Reader keeps one up
// to date: it runs one goroutine for each kind of object in each namespace, and
// its own.
package kube
