// Package kube reads the mesh from the Kubernetes API instead of from istiod:
// Services with their EndpointSlices, Pods and Nodes, and Istio's ServiceEntries and
// WorkloadEntries. It makes the clusters that istiod would make, and reads service
// keys from annotations and labels. It never writes. An object is gone only after its
// deletion was observed.
//
// A Model is what follows from objects, without I/O. A Reader keeps one in sync, with
// one goroutine for each kind of object in each namespace, and its own.
package kube
