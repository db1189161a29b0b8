package main

import (
	"testing"

	"github.com/xds-bridge/xds-bridge/plugins/internal/example/exampletest"
)

func TestExample(t *testing.T) { exampletest.Try(t, program()) }
