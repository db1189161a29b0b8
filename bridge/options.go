package bridge

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

func (o Options) withDefaults() Options {
	o.Workers = cmp.Or(max(o.Workers, 0), 16)
	o.Timeout = cmp.Or(max(o.Timeout, 0), 30*time.Second)
	o.Quiet = max(o.Quiet, 0)
	o.MaxQuiet = max(cmp.Or(max(o.MaxQuiet, 0), 10*o.Quiet), o.Quiet)
	o.Refresh = cmp.Or(max(o.Refresh, 0), 5*time.Minute)
	o.Retry.Min = cmp.Or(max(o.Retry.Min, 0), time.Second)
	o.Retry.Max = max(cmp.Or(max(o.Retry.Max, 0), time.Minute), o.Retry.Min)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

func (b Bridge) withDefaults() Bridge {
	b.Policy = cmp.Or(b.Policy, PolicySync)
	b.Guard.Mode = cmp.Or(b.Guard.Mode, GuardEnforce)
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
