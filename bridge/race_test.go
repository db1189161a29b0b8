//go:build race

package bridge_test

// raced says that the race detector is on.
const raced = true
