// Package kubernetes writes services of registries as Istio's ServiceEntries: as objects of
// the Kubernetes API, or as files in a directory that istiod, Git or Argo CD reads. It has
// no source; package kube of the mesh reads Kubernetes.
//
//	target, write            the target over a Store, whichever it is
//	watch                    what others change in the API, by the versions of objects
//	api, list                the Store in the Kubernetes API
//	directory                the Store in a directory
//	records                  the bridge's records, in ConfigMaps or hidden files
//	access                   required rights, and what errors of the API server mean
//
// Goroutines: WatchedTarget.Run watches each kind of object in a goroutine of its own. All
// other calls do their work in the goroutine of their caller.
package kubernetes
