package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/redact"
)

const (
	maxSilence   = 60 * time.Second // after which a loop that does not answer makes /livez fail
	pollInterval = 15 * time.Second // between two polls of the loops
	askTimeout   = 2 * time.Second  // for one answer of a loop
)

// Telemetry returns the handler of probes and metrics.
func (s *Server) Telemetry() http.Handler {
	mux := http.NewServeMux()
	for path, checks := range map[string]func(context.Context) []check{
		"/livez": s.live, "/readyz": s.ready, "/startupz": s.startup,
		"/-/healthy": s.live, "/-/ready": s.ready,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			writeProbe(w, r, strings.TrimPrefix(path, "/"), checks(r.Context()))
		})
	}
	if s.opts.Metrics != nil {
		mux.Handle("GET /metrics", s.opts.Metrics)
	}
	return withChecks(mux)
}

// check is one line of a probe. An empty problem means that the check passed.
type check struct{ name, problem string }

// live checks that every loop answered within maxSilence. It ignores the state of
// registries: a restart would lose the last good state and repair nothing.
func (rep *reporter) live(context.Context) []check {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	checks := []check{{name: "ping"}}
	for _, t := range rep.deployment.targets {
		c := check{name: "loop/" + t.Name}
		if silent := time.Since(rep.answered[t.Name]); silent > maxSilence {
			c.problem = "no answer for " + silent.Truncate(time.Second).String()
		}
		checks = append(checks, c)
	}
	return checks
}

// startup checks that every loop runs. It ignores the state of registries: a registry that
// is down at the start must not make the kubelet kill the process.
func (rep *reporter) startup(ctx context.Context) []check {
	checks := []check{{name: "config"}}
	targets := rep.current().targets
	for i, err := range rep.askLoops(ctx, targets) {
		c := check{name: "loop/" + targets[i].Name}
		if err != nil {
			c.problem = "not running yet"
		}
		checks = append(checks, c)
	}
	return checks
}

// ready checks that each source was complete once, that each target was listed once, and
// that every target may be written. A check of a source or target that passed once keeps
// passing: status shows later outages, not the probe.
func (rep *reporter) ready(context.Context) []check {
	checks := []check{{name: "config"}}
	for _, in := range rep.current().inputs {
		synced := in.Table.Summary().Synced
		checks = append(checks, rep.checkOnce("source/"+in.Name, synced, "no complete snapshot yet", in.State().LastError))
	}
	for _, t := range rep.current().targets {
		st := t.summary()
		c := rep.checkOnce("target/"+t.Name, st.Listed, "not listed yet", st.LastError)
		c.problem = cmp.Or(t.State().Refused, c.problem)
		checks = append(checks, c)
	}
	if rep.opts.Replicas != nil {
		r := rep.opts.Replicas()
		problem := cmp.Or(r.LastError, "a target is not read yet, or this replica leads it and has not written it yet")
		checks = append(checks, rep.checkOnce("replicas", r.Ready, problem, ""))
	}
	return checks
}

// checkOnce returns a check that passes if it passes now or passed before. Otherwise its
// problem ends with the cause, if there is one.
func (rep *reporter) checkOnce(name string, passes bool, problem, cause string) check {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	rep.passed[name] = rep.passed[name] || passes
	switch {
	case rep.passed[name]:
		return check{name: name}
	case cause != "":
		problem += ": " + cause
	}
	return check{name, problem}
}

// writeProbe writes the checks of a probe as the kube-apiserver does: only ok, or all checks
// if the request is verbose or a check failed.
func writeProbe(w http.ResponseWriter, r *http.Request, probe string, checks []check) {
	var text strings.Builder
	failed := false
	for _, c := range checks {
		if c.problem == "" {
			fmt.Fprintf(&text, "[+]%s ok\n", redact.Line(c.name))
			continue
		}
		failed = true
		fmt.Fprintf(&text, "[-]%s failed: %s\n", redact.Line(c.name), redact.Line(c.problem))
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, verbose := r.URL.Query()["verbose"]
	switch {
	case failed:
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(&text, "%s check failed\n", probe)
	case verbose:
		fmt.Fprintf(&text, "%s check passed\n", probe)
	default:
		text.Reset()
		text.WriteString("ok\n")
	}
	_, _ = w.Write([]byte(text.String()))
}

// pollLoops polls the loops and the audit file until ctx ends.
func (rep *reporter) pollLoops(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		_ = rep.opts.Audit.Check() // a condition shows its error
		targets := rep.current().targets
		for i, err := range rep.askLoops(ctx, targets) {
			if err != nil && ctx.Err() == nil {
				rep.opts.Log.Warn("loop does not answer", "registry", targets[i].Name, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
