package main

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"
)

// Every command ends what it starts.
func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}) }

// tests gives back the connections that the tests' own client keeps.
type tests struct{ *testing.M }

func (t tests) Run() int {
	defer http.DefaultClient.CloseIdleConnections()
	return t.M.Run()
}
