package bridge

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

func (o Options) withDefaults() Options {
	if o.Workers <= 0 {
		o.Workers = 16
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	o.Quiet = max(o.Quiet, 0)
	if o.MaxQuiet <= 0 {
		o.MaxQuiet = 10 * o.Quiet
	}
	o.MaxQuiet = max(o.MaxQuiet, o.Quiet)
	if o.Refresh <= 0 {
		o.Refresh = 5 * time.Minute
	}
	if o.Retry.Min <= 0 {
		o.Retry.Min = time.Second
	}
	if o.Retry.Max <= 0 {
		o.Retry.Max = time.Minute
	}
	o.Retry.Max = max(o.Retry.Max, o.Retry.Min)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (b Bridge) withDefaults() Bridge {
	if b.Policy == "" {
		b.Policy = PolicySync
	}
	if b.Guard.Mode == "" {
		b.Guard.Mode = GuardEnforce
	}
	return b
}

func (b Bridge) validate() error {
	switch b.Policy {
	case PolicySync, PolicyUpsertOnly, PolicyCreateOnly, PolicyReadOnly:
	default:
		return fmt.Errorf("unknown policy %q", b.Policy)
	}
	switch b.Guard.Mode {
	case GuardEnforce, GuardWarn, GuardOff:
	default:
		return fmt.Errorf("unknown mode %q of the guard", b.Guard.Mode)
	}
	switch {
	case b.Name == "":
		return errors.New("it needs a name")
	case b.Table == nil || b.Project == nil:
		return errors.New("it needs a table and a projection")
	}
	return validateGuard(b.Guard)
}

func validateGuard(g Guard) error {
	if !(g.Share >= 0 && g.Share <= 1) { // nor NaN
		return fmt.Errorf("share of the guard: %v is not between 0 and 1", g.Share)
	}
	if g.AtLeast < 0 || min(g.Window, g.LastEndpoint, g.Settle, g.Confirm) < 0 {
		return errors.New("the guard has a negative number or time")
	}
	return nil
}
