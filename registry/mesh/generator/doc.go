// Package generator reads service keys from the ServiceEntries and WorkloadEntries that
// istiod sends over xDS with its generator "api". Their annotations and labels are those in
// the Kubernetes API or in a file. The package requires neither that API nor istiod's debug
// port. Package kube derives the keys from the objects.
//
//	reader    reading istiod at each interval, in the goroutine that calls Run
//	object    one object as istiod sends it
//	state     the mapping as of the last readings
package generator
