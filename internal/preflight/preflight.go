// Package preflight runs the checks of a configuration before the bridge runs. Each kind of
// registry has its own checks. This package runs them and has the remedies for common errors.
//
//	preflight.go  Run, which runs all checks at the same time
//	findings.go   the results of a check
//	remedy.go     what to do about an error of a connection, or a missing permission
//	storage.go    the check of the files that the process writes
package preflight

import (
	"context"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/config"
)

// A Check is the check of one registry in one role.
type Check struct {
	Registry string // empty: the process itself
	Role     Role
	Try      func(ctx context.Context, f *Findings)
}

// Run runs all checks at the same time, and returns their findings in the order of the
// checks. After the timeout, the context of the checks ends.
func Run(ctx context.Context, timeout time.Duration, checks []Check) []Finding {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	lists := make([]Findings, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		lists[i] = Findings{registry: c.Registry, role: c.Role}
		wg.Go(func() { c.Try(ctx, &lists[i]) })
	}
	wg.Wait()
	all := []Finding{}
	for _, l := range lists {
		all = append(all, l.found...)
	}
	return all
}

// CheckPlaintext warns if a password crosses the network in plaintext, which the setting
// insecure allows.
func CheckPlaintext(f *Findings, tls *config.TLS, user string, servers []string, remedy string) {
	if tls == nil && user != "" && !config.Local(servers) {
		f.Warn("tls", "insecure: true: the password of "+user+" crosses the network in plaintext", remedy)
	}
}
