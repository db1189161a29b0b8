// Package soaktest reads how much the tests try that run with the build tag soak.
package soaktest

import (
	"os"
	"strconv"
	"testing"
)

// Number returns the number that a variable of the environment holds, or a
// default where it is not set.
func Number(t testing.TB, variable string, number int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return number
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return number
}

// Seeds returns how many random schedules are tried: XDS_BRIDGE_SEEDS, or 60.
func Seeds(t testing.TB) int {
	t.Helper()
	return Number(t, "XDS_BRIDGE_SEEDS", 60)
}
