// Package bench measures the bridge against the physical limits of its job.
// Every figure is measured next to its floor in the same run, because machines
// differ and are busy: quote the ratios, never a single time.
package bench
