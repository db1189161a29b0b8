package kind

import (
	"testing"

	"go.uber.org/goleak"
)

// Everything ends what it starts.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
