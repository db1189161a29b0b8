// Package preflight gathers what a configuration requires before it runs. What is tried is
// up to each kind of registry; this package runs the checks and words what they find.
//
//	preflight.go  Run, which runs all checks at the same time
//	findings.go   what a check reports
//	remedy.go     what to do about an error, by its text or its right
//	storage.go    the check of the files that the process writes
package preflight

import (
	"context"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
)

// A Check tries one registry in one role.
type Check struct {
	Registry string // empty: the process itself
	Role     Role
	Try      func(ctx context.Context, f *Findings)
}

// Run runs all checks at the same time, and returns what they found in their order.
func Run(ctx context.Context, timeout time.Duration, checks []Check) []Finding {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	lists := make([]Findings, len(checks))
	var running sync.WaitGroup
	for i, c := range checks {
		lists[i] = Findings{registry: c.Registry, role: c.Role}
		running.Go(func() { c.Try(ctx, &lists[i]) })
	}
	running.Wait()
	all := []Finding{}
	for _, l := range lists {
		all = append(all, l.found...)
	}
	return all
}

// CheckPlaintext warns if a password crosses the network for everybody to read,
// which insecure: true permits.
func CheckPlaintext(f *Findings, tls *config.TLS, user string, servers []string, remedy string) {
	if tls == nil && user != "" && !config.Local(servers) {
		f.Warn("tls", "insecure: true: the password of "+user+" crosses the network in plaintext", remedy)
	}
}
