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
			answer(w, r, strings.TrimPrefix(path, "/"), checks(r.Context()))
		})
	}
	if s.opts.Metrics != nil {
		mux.Handle("GET /metrics", s.opts.Metrics)
	}
	return plain(mux)
}

// check is one line of a probe; an empty problem means that it passed.
type check struct{ name, problem string }

// live checks that every loop answered within the last minute. It never asks
// how a registry is: a restart would lose the last good state and repair nothing.
func (v *view) live(context.Context) []check {
	v.mu.Lock()
	defer v.mu.Unlock()
	checks := []check{{name: "ping"}}
	for _, t := range v.shown.targets {
		c := check{name: "loop/" + t.Name}
		if silent := time.Since(v.answered[t.Name]); silent > maxSilence {
			c.problem = "no answer for " + silent.Truncate(time.Second).String()
		}
		checks = append(checks, c)
	}
	return checks
}

// startup checks that the process is built and its loops run, without regard
// to registries: one that is down at the start must not make the kubelet kill us.
func (v *view) startup(ctx context.Context) []check {
	checks := []check{{name: "config"}}
	targets := v.current().targets
	for i, err := range v.ask(ctx, targets) {
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
func (v *view) ready(context.Context) []check {
	checks := []check{{name: "config"}}
	for _, in := range v.current().inputs {
		checks = append(checks, v.once("source/"+in.Name, in.Table.Summary().Synced, "no complete snapshot yet", in.State().LastError))
	}
	for _, t := range v.current().targets {
		st := t.summary()
		c := v.once("target/"+t.Name, st.Listed, "not listed yet", st.LastError)
		c.problem = cmp.Or(t.State().Refused, c.problem)
		checks = append(checks, c)
	}
	if v.opts.Replicas != nil {
		r := v.opts.Replicas()
		checks = append(checks, v.once("replicas", r.Ready, cmp.Or(r.LastError, "a target is not read, or not written where this replica leads"), ""))
	}
	return checks
}

// once returns a check that passes for good once it did: passes is whether it does now, and
// why says more of its problem.
func (v *view) once(name string, passes bool, problem, why string) check {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.passed[name] = v.passed[name] || passes
	switch {
	case v.passed[name]:
		return check{name: name}
	case why != "":
		problem += ": " + why
	}
	return check{name, problem}
}

// answer writes a probe's checks as the kube-apiserver does: all of them if
// asked to be verbose or if one failed.
func answer(w http.ResponseWriter, r *http.Request, probe string, checks []check) {
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

func (v *view) pollLoops(ctx context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		_ = v.opts.Audit.Check() // its error is a condition
		targets := v.current().targets
		for i, err := range v.ask(ctx, targets) {
			if err != nil && ctx.Err() == nil {
				v.opts.Log.Warn("loop does not answer", "registry", targets[i].Name, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
