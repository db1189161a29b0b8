package registrytest

import (
	"testing"
	"time"
)

// Long returns how much virtual time the tests take that look for what gathers.
func Long() time.Duration {
	if testing.Short() {
		return 2 * time.Hour
	}
	return 24 * time.Hour
}
