package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/cause"
	"github.com/xds-bridge/xds-bridge/internal/kind"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// startPeriod is how long a process counts as one that starts. Within it a
// refusal ends the process, since whoever started it is there to read why. A
// registry that was out of reach may refuse later, and a reload may add one
// that does: nobody is there then, and what works for others continues.
const startPeriod = 5 * time.Minute

// An admission asks whether a ZooKeeper target may be written to, until it may, and
// reports why it may not.
type admission struct {
	target     kind.Admitter
	fatalUntil time.Time     // before it a refusal ends the process; zero: it never does
	retry      time.Duration // after which it is asked again
	name       string
	log        *slog.Logger
	emit       func(bridge.Event)
	back       chan<- struct{} // made ready when a refusal ended: a person may have changed much

	mu      sync.Mutex
	refused error // why it may not be written to; nil: it may, or that is not known yet
}

func newAdmission(b *builder, name string, target kind.Admitter, back chan<- struct{}) *admission {
	a := &admission{
		target: target, retry: b.cfg.Registries[name].Timing.RetryMax.Std(), name: name, back: back,
		log: b.env().Logger("zookeeper", name), emit: b.events.Add,
	}
	if b.before.cfg == nil {
		a.fatalUntil = time.Now().Add(startPeriod)
	}
	return a
}

// wait returns once the target may be written to or ctx ended; an error ends
// the process.
func (a *admission) wait(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		err := a.target.Admit(ctx)
		if !errors.Is(err, zookeeper.ErrDuplicateProcess) && !errors.Is(err, zookeeper.ErrOwner) {
			a.setRefused(nil)
			return err
		}
		if time.Now().Before(a.fatalUntil) {
			return cause.New(cause.Usage, err)
		}
		a.setRefused(err)
		timer.Reset(a.retry)
	}
}

// setRefused says that a refusal began or ended, each once.
func (a *admission) setRefused(refused error) {
	a.mu.Lock()
	before := a.refused
	a.refused = refused
	a.mu.Unlock()
	switch {
	case refused != nil && before == nil:
		a.log.Error("the target may not be written to; it is tried again, and other targets continue", "err", refused, "every", a.retry)
		a.emit(bridge.Event{
			Time: time.Now(), Kind: bridge.EventRefused, Target: a.name, What: "nothing may be written to the target",
			Why: refused.Error(), Release: "when a retry succeeds; one is made every " + a.retry.String(),
		})
	case refused == nil && before != nil:
		a.log.Info("the target may be written to by now")
		select {
		case a.back <- struct{}{}:
		default: // it is ready already
		}
	}
}

// refusal says why the target may not be written to, empty if it may.
func (a *admission) refusal() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refused == nil {
		return ""
	}
	return a.refused.Error()
}

// warning says what the target waits for before it may be written to, or that others
// do not see that it is; empty if neither, or if refusal says why it may not be.
func (a *admission) warning() string {
	if a.refusal() != "" {
		return ""
	}
	if err := a.target.Admission(); err != nil {
		return err.Error()
	}
	if err := a.target.Hidden(); err != nil {
		return "a second bridge of this owner is not refused, since it cannot be shown that this one runs: " + err.Error()
	}
	return ""
}

// keepAlive keeps the liveness node of the target, once it may be written to.
func (a *admission) keepAlive(ctx context.Context) error {
	if err := a.wait(ctx); err != nil {
		return err
	}
	a.target.KeepAlive(ctx)
	return nil
}
