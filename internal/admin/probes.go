package admin

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/redact"
)

// The time a loop may be silent before /livez fails, how often it is asked,
// how long a question to it may take, and how long one that it answers in many
// parts, once it is known to answer.
const (
	alive = 60 * time.Second
	beat  = 15 * time.Second
	ask   = 2 * time.Second
	read  = 20 * time.Second
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
func (s *Server) live(context.Context) []check {
	s.mu.Lock()
	defer s.mu.Unlock()
	checks := []check{{name: "ping"}}
	for _, t := range s.opts.Targets {
		c := check{name: "loop/" + t.Name}
		if silent := time.Since(s.ticked[t.Name]); silent > alive {
			c.problem = "no answer for " + silent.Truncate(time.Second).String()
		}
		checks = append(checks, c)
	}
	return checks
}

// startup checks that the process is built and its loops run, without regard
// to registries: one that is down at the start must not make the kubelet kill us.
func (s *Server) startup(ctx context.Context) []check {
	checks := []check{{name: "config"}}
	for _, t := range s.targets() {
		c := check{name: "loop/" + t.Name}
		if s.alive(ctx, t) != nil {
			c.problem = "not running yet"
		}
		checks = append(checks, c)
	}
	return checks
}

// ready checks that there is a state to work with: each source was complete
// once, each target was listed once and none refuses us. What was true once
// stays so: an outage afterwards is shown by status, not here.
func (s *Server) ready(context.Context) []check {
	checks := []check{{name: "config"}}
	for _, in := range s.inputs() {
		c := check{name: "source/" + in.Name}
		if !s.sourceSynced(in) {
			c.problem = "no complete snapshot yet"
			if in.State != nil && in.State().LastError != "" {
				c.problem += ": " + in.State().LastError
			}
		}
		checks = append(checks, c)
	}
	for _, t := range s.targets() {
		c := check{name: "target/" + t.Name}
		if listed, err := s.targetListed(t); !listed {
			c.problem = "not listed yet"
			if err != "" {
				c.problem += ": " + err
			}
		}
		if why := t.refused(); why != "" {
			c.problem = why
		}
		checks = append(checks, c)
	}
	if s.opts.Replicas != nil {
		checks = append(checks, s.caughtUp(s.opts.Replicas()))
	}
	return checks
}

// caughtUp checks that this replica has read everything, and written it where it
// leads.
func (s *Server) caughtUp(r *Replicas) check {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caught = s.caught || r.Ready
	switch c := (check{name: "replicas"}); {
	case s.caught:
		return c
	case r.LastError != "":
		c.problem = r.LastError
		return c
	default:
		c.problem = "a target is not read, or not written where this replica leads"
		return c
	}
}

func (s *Server) sourceSynced(in Input) bool {
	s.mu.Lock()
	known := s.synced[in.Name]
	s.mu.Unlock()
	if known {
		return true
	}
	if !in.Table.Summary().Synced {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced[in.Name] = true
	return true
}

// targetListed reports whether a target was listed once, and if not the last
// error there.
func (s *Server) targetListed(t Target) (bool, string) {
	st := s.summary(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed[t.Name] = s.listed[t.Name] || st.Listed
	return s.listed[t.Name], st.LastError
}

// answer writes a probe's checks as the kube-apiserver does: all of them if
// asked to be verbose or if one failed.
func answer(w http.ResponseWriter, r *http.Request, probe string, checks []check) {
	var text strings.Builder
	failed := false
	for _, c := range checks {
		if c.problem == "" {
			fmt.Fprintf(&text, "[+]%s ok\n", printable(c.name))
			continue
		}
		failed = true
		fmt.Fprintf(&text, "[-]%s failed: %s\n", printable(c.name), printable(c.problem))
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

// printable keeps text of others on its line, without the secrets in it.
func printable(s string) string {
	q := strconv.Quote(redact.Text(s))
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// pulse asks every loop now and then whether it lives.
func (s *Server) pulse(ctx context.Context) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		for _, t := range s.targets() {
			if err := s.alive(ctx, t); err != nil && ctx.Err() == nil {
				s.opts.Log.Warn("loop does not answer", "peer", t.Name, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
