package bridge

import (
	"context"
	"fmt"
	"time"
)

// Tune changes how a loop goes about its work without stopping it: the guards
// of bridges, by name, and of the options Workers, Rate, Timeout, Quiet,
// MaxQuiet, Refresh and Retry. Calls under way go on. What is held is judged by
// the new guards from then on, and goes where they hold nothing.
func (l *Loop) Tune(ctx context.Context, guards map[string]Guard, opts Options) error {
	for name, g := range guards {
		if err := validateGuard(g); err != nil {
			return fmt.Errorf("bridge %q: %w", name, err)
		}
	}
	return l.ask(ctx, func(r *loop) { r.tune(guards, opts, time.Now()) })
}

func (l *loop) tune(guards map[string]Guard, opts Options, now time.Time) {
	opts = opts.withDefaults()
	l.opts.Workers, l.opts.Timeout, l.opts.Retry = opts.Workers, opts.Timeout, opts.Retry
	l.opts.Quiet, l.opts.MaxQuiet, l.opts.Refresh = opts.Quiet, opts.MaxQuiet, opts.Refresh
	l.opts.Rate, l.budget.rate = opts.Rate, opts.Rate
	l.budget.most = opts.Workers
	l.agenda.quiet, l.agenda.maxQuiet = opts.Quiet, opts.MaxQuiet
	for i, w := range l.ways {
		if g, ok := guards[w.Name]; ok {
			w.Guard = g
			if g.Mode == "" {
				w.Guard.Mode = GuardEnforce
			}
			l.scopes[i].guard.Options, l.scopes[i].changed = w.Guard, true
		}
	}
	l.review(now)
}
