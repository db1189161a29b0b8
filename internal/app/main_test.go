package app

import (
	"testing"

	"go.uber.org/goleak"
)

// Everything ends what it starts.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noEnv is an environment without variables.
func noEnv(string) (string, bool) { return "", false }
