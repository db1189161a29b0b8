// Package kube reads the mesh from the Kubernetes API instead of from istiod: Services with
// their EndpointSlices, Pods and Nodes, and Istio's ServiceEntries and WorkloadEntries. It
// derives the clusters that istiod would make, and reads service keys from annotations and
// labels. It never writes. An object counts as deleted only after its deletion was observed.
//
//	model, object_set              all objects, and the clusters and keys derived from them
//	derivation, service, entry     the derivation from one Service or ServiceEntry
//	keys                           service keys in annotations and labels
//	objects                        Istio's objects, and which fields of objects are used
//	reader, reporter               keeping a Model in sync, and reporting its changes
//	informer, client               listing and watching one kind of object
//
// A Model does no I/O. A Reader runs one goroutine for each kind of object in each namespace,
// which changes the Model, and one that reports the changes.
package kube
