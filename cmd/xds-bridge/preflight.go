package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

type preflightOptions struct {
	output  output
	timeout time.Duration
}

func (c *cli) preflightCommand() *cobra.Command {
	var o preflightOptions
	cmd := &cobra.Command{
		Use: "preflight", Short: "Try everything that run needs, and say how to mend what fails", Args: noArgs,
		Long: "preflight connects to every peer of the configuration and tries what run needs:\n" +
			"versions, the token, the debug API, permissions by a node that it writes and\n" +
			"deletes, clocks. √ is fine, ‼ is worth a look, × has to be mended.",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.preflight(cmd.Context(), o) },
	}
	outputFlag(cmd, &o.output)
	cmd.Flags().DurationVar(&o.timeout, "timeout", 15*time.Second, "how long a peer may take to answer")
	return cmd
}

// outcome is what became of one check.
type outcome string

const (
	passed outcome = "ok"
	warned outcome = "warning"
	failed outcome = "failed"
)

// role is what a registry is to the bridges that are checked.
type role string

const (
	asSource   role = "source"
	asTarget   role = "target"
	asRegistry role = "registry" // in either direction
)

// finding is what preflight prints of one check.
type finding struct {
	Peer    string  `json:"peer"`
	Role    role    `json:"role"`
	Check   string  `json:"check"`
	Outcome outcome `json:"outcome"`
	Detail  string  `json:"detail,omitempty"`
	Fix     string  `json:"fix,omitempty"` // what to do; empty where nothing has to be

	away bool // the peer could not be reached
}

// findings gathers the checks of one peer in one role.
type findings struct {
	peer string
	role role
	all  []finding
}

func (f *findings) pass(check, format string, args ...any) {
	f.add(finding{Check: check, Outcome: passed, Detail: fmt.Sprintf(format, args...)})
}

func (f *findings) warn(check, detail, fix string) {
	f.add(finding{Check: check, Outcome: warned, Detail: detail, Fix: fix})
}

func (f *findings) fail(check string, err error, fix string) {
	f.add(finding{Check: check, Outcome: failed, Detail: err.Error(), Fix: fix})
}

func (f *findings) add(one finding) {
	one.Peer, one.Role = f.peer, f.role
	f.all = append(f.all, one)
}

// away is fail for a peer that cannot be reached.
func (f *findings) away(check string, err error, fix string) {
	f.fail(check, err, remedyOf(err, fix))
	f.all[len(f.all)-1].away = true
}

func (c *cli) preflight(ctx context.Context, o preflightOptions) error {
	h, err := c.runtime(buildOptions{dryRun: true, quiet: true}) //nolint:contextcheck // connections outlive what makes them
	if err != nil {
		return err
	}
	defer h.close()
	var asked []string
	for _, w := range h.registryIDs {
		asked = append(asked, w.name)
	}
	c.note("asking %s", strings.Join(asked, ", "))
	all := h.examine(ctx, o.timeout)
	if ctx.Err() != nil {
		return context.Cause(ctx) //nolint:wrapcheck // the signal itself
	}
	if o.output == outputJSON {
		if err := c.document(all); err != nil {
			return err
		}
	} else {
		c.printFindings(all)
	}
	code := exitOK
	for _, f := range all {
		if f.Outcome == failed && code == exitOK {
			code = exitFindings
		}
		if f.away {
			code = exitUnreachable
		}
	}
	if code != exitOK {
		return exit{code: code}
	}
	return nil
}

// examine tries all peers at the same time.
func (h *runtime) examine(ctx context.Context, timeout time.Duration) []finding {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var checks []func(context.Context, *findings)
	var lists []*findings
	for _, in := range h.sources {
		checks, lists = append(checks, in.check), append(lists, &findings{peer: in.name, role: asSource})
	}
	for _, o := range h.sinks {
		checks, lists = append(checks, o.check), append(lists, &findings{peer: o.at.registry, role: asTarget})
	}
	for _, i := range h.registryIDs {
		checks, lists = append(checks, i.check), append(lists, &findings{peer: i.name, role: asRegistry})
	}
	var running sync.WaitGroup
	for i, check := range checks {
		running.Go(func() { check(ctx, lists[i]) })
	}
	running.Wait()
	all := []finding{}
	for _, l := range lists {
		all = append(all, l.all...)
	}
	return all
}

func (c *cli) printFindings(all []finding) {
	heading := ""
	for _, f := range all {
		if h := string(f.Role) + " " + f.Peer; h != heading {
			heading = h
			c.say("%s", heading)
		}
		sign, how := "√", green
		switch f.Outcome {
		case warned:
			sign, how = "‼", yellow
		case failed:
			sign, how = "×", red
		case passed:
		}
		c.show(how, "  %s %s%s", sign, f.Check, c.withFile(colon(f.Detail)))
		if f.Fix != "" {
			c.say("      fix: %s", f.Fix)
		}
	}
}
