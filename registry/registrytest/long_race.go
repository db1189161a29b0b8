//go:build race

package registrytest

import "time"

// Long is shorter with the race detector, of which hours show no more than
// minutes: a run without it has the whole day.
const Long = 2 * time.Hour
