// Package generator learns service keys from the ServiceEntries and
// WorkloadEntries that istiod's generator "api" tells over xDS: by the annotations
// and labels that they have in the Kubernetes API or in a file. It needs neither
// that API nor istiod's debug port. Which keys follow from the objects, package
// kube says.
//
// state is what follows from answers, and does no I/O. A Reader asks istiod, in the
// goroutine of its caller.
package generator
