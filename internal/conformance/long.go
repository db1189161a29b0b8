package conformance

import (
	"testing"
	"time"
)

// Long returns how much virtual time the tests take that look for what gathers.
func Long() time.Duration {
	if testing.Short() {
		return 90 * time.Minute
	}
	return 24 * time.Hour
}
