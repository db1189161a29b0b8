//go:build !race

package registrytest

import "time"

// Long is how much virtual time the tests take that look for what gathers.
const Long = 24 * time.Hour
