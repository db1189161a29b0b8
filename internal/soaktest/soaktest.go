// Package soaktest returns how much the tests with the build tag soak try.
package soaktest

import (
	"os"
	"strconv"
	"testing"
)

// Number returns the number in an environment variable, or a default if it is not set.
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

// Seeds returns the number of random schedules: XDS_BRIDGE_SEEDS, or 60.
func Seeds(t testing.TB) int {
	t.Helper()
	return Number(t, "XDS_BRIDGE_SEEDS", 60)
}
