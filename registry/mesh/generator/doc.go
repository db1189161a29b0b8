// Package generator reads service keys from the ServiceEntries and WorkloadEntries
// that istiod's generator "api" sends over xDS: from the annotations and labels that
// they have in the Kubernetes API or in a file. It requires neither that API nor
// istiod's debug port. Package kube derives the keys from the objects.
//
// A Reader reads istiod in the goroutine of its caller.
package generator
