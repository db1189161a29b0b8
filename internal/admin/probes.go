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

// The time a loop may be silent before /livez fails, how often it is asked, and how long
// a question to it may last.
const (
	maxSilence   = 60 * time.Second
	pollInterval = 15 * time.Second
	askTimeout   = 2 * time.Second
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

// check is one line of a probe; an empty problem means that it passed.
type check struct{ name, problem string }

// live checks that every loop answered within the last minute. It never asks
// how a registry is: a restart would lose the last good state and repair nothing.
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

// startup checks that the process is built and its loops run, without regard
// to registries: one that is down at the start must not make the kubelet kill us.
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

// ready checks that there is a state to work with: each source was complete
// once, each target was listed once and none refuses us. What was true once
// stays so: an outage afterwards is shown by status, not here.
func (rep *reporter) ready(context.Context) []check {
	checks := []check{{name: "config"}}
	for _, in := range rep.current().inputs {
		checks = append(checks, rep.checkOnce("source/"+in.Name, in.Table.Summary().Synced, "no complete snapshot yet", in.State().LastError))
	}
	for _, t := range rep.current().targets {
		st := t.summary()
		c := rep.checkOnce("target/"+t.Name, st.Listed, "not listed yet", st.LastError)
		c.problem = cmp.Or(t.State().Refused, c.problem)
		checks = append(checks, c)
	}
	if rep.opts.Replicas != nil {
		r := rep.opts.Replicas()
		checks = append(checks, rep.checkOnce("replicas", r.Ready, cmp.Or(r.LastError, "a target is not read, or not written where this replica leads"), ""))
	}
	return checks
}

// once returns a check that passes for good once it did: passes is whether it does now, and
// why says more of its problem.
func (rep *reporter) checkOnce(name string, passes bool, problem, why string) check {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	rep.passed[name] = rep.passed[name] || passes
	switch {
	case rep.passed[name]:
		return check{name: name}
	case why != "":
		problem += ": " + why
	}
	return check{name, problem}
}

// answer writes a probe's checks as the kube-apiserver does: all of them if
// asked to be verbose or if one failed.
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

func (rep *reporter) pollLoops(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		_ = rep.opts.Audit.Check() // its error is a condition
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
