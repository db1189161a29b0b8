package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/internal/cause"
)

// runtime is a configuration made into things that run. The parts of a runtime
// that a reload does not touch go over into the next one as they are.
type runtime struct {
	*process

	cfg           *config.Config
	sources       []*boundSource
	targets       []*target
	registryIDs   []*registryID
	keyPublishers []*keyPublisher
	elections     []*election
}

// close gives back what the runtime holds, after it ran or in place of it.
func (r *runtime) close() { r.closeBut(nil) }

// closeBut gives back what the runtime holds, but for connections that are kept.
func (r *runtime) closeBut(kept []*targetConnection) {
	for _, s := range r.targets {
		if !slices.Contains(kept, s.targetConnection) {
			s.Close()
		}
	}
}

func (r *runtime) target(at config.TargetKey) *target {
	return first(r.targets, func(t *target) bool { return t.at == at })
}

func (r *runtime) source(name string) *boundSource {
	return first(r.sources, func(s *boundSource) bool { return s.name == name })
}

func (r *runtime) registryID(name string) *registryID {
	return first(r.registryIDs, func(i *registryID) bool { return i.name == name })
}

func (r *runtime) keyPublisher(mesh string) *keyPublisher {
	return first(r.keyPublishers, func(p *keyPublisher) bool { return p.mesh == mesh })
}

// first returns the first that fits, nil if none does.
func first[T any](all []*T, fits func(*T) bool) *T {
	if i := slices.IndexFunc(all, fits); i >= 0 {
		return all[i]
	}
	return nil
}

// runWhile runs sources and connections, and some of the loops, until work ends. The
// timeout ends work alone: the runtime is still there to report what was missing.
func (r *runtime) runWhile(ctx context.Context, timeout time.Duration, loops []*target, work func(context.Context) error) error {
	ctx, worked := context.WithCancel(ctx)
	defer worked()
	timed, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l, base := newLifecycle(r.log), context.WithoutCancel(ctx)
	r.bindSources()
	for _, s := range r.targets {
		begin(base, l, s.targetConnection)
	}
	begin(base, l, loops...)
	begin(base, l, r.registryIDs...)
	begin(base, l, r.keyPublishers...)
	begin(base, l, r.sources...)
	var failed, result error
	var working sync.WaitGroup
	working.Go(func() {
		defer worked()
		result = work(timed)
	})
	select {
	case <-ctx.Done():
	case failed = <-l.failed:
	}
	l.stop()
	working.Wait()
	return errors.Join(failed, result)
}

// names returns the registries of the runtime, each once.
func (r *runtime) names() []string {
	var names []string
	for _, s := range r.sources {
		names = append(names, s.name)
	}
	for _, s := range r.targets {
		if !slices.Contains(names, s.at.Registry) {
			names = append(names, s.at.Registry)
		}
	}
	return names
}

// bindSources has each table filled by its source of this runtime, within its limits.
func (r *runtime) bindSources() {
	for _, s := range r.sources {
		s.current.Store(s)
		s.limit(r.cfg.Registries[s.name])
	}
}

func (r *runtime) targetNames(registry string) []string {
	var names []string
	for _, s := range r.targets {
		if s.at.Registry == registry {
			names = append(names, s.at.String())
		}
	}
	return names
}

// entriesAfter says which entries stay once the process has ended.
func (r *runtime) entriesAfter() string {
	var goes []string
	for _, s := range r.targets {
		if !s.Persistent && s.listen == "" {
			goes = append(goes, s.name)
		}
	}
	if len(goes) == 0 {
		return "every entry is kept"
	}
	return "entries in " + strings.Join(goes, ", ") + " go with the connection, unless another replica publishes them; all others stay"
}

// statusView returns the sources and targets for the status API.
func (r *runtime) statusView() (inputs []admin.Input, targets []admin.Target) {
	for _, s := range r.sources {
		inputs = append(inputs, admin.Input{Name: s.name, Kind: s.kind, Table: s.table, State: s.State})
	}
	for _, t := range r.targets {
		targets = append(targets, admin.Target{Name: t.name, Registry: t.at.Registry, Listen: t.at.Listen, Kind: t.kind, Loop: t.loop, State: t.stateWithAdmission})
	}
	return inputs, targets
}

// complete runs a runtime until nothing is due without a new event, and returns the status
// of each loop then. An error of CauseUnreachable says what was missing at the timeout.
func (r *runtime) complete(ctx context.Context, timeout time.Duration) ([]bridge.Status, error) {
	statuses := make([]bridge.Status, len(r.targets))
	err := r.runWhile(ctx, timeout, r.targets, func(ctx context.Context) error {
		return atOnce(len(r.targets), func(i int) error {
			s := r.targets[i]
			if s.admission != nil {
				if err := s.admission.wait(ctx); err != nil {
					return err
				}
			}
			var err error
			statuses[i], err = s.loop.AwaitIdle(ctx)
			return err
		})
	})
	return statuses, r.judge(ctx, err, statuses, timeout)
}

// plans returns the changes that each loop would write.
func (r *runtime) plans(ctx context.Context, timeout time.Duration) ([][]bridge.Planned, []bridge.Status, error) {
	plans, statuses := make([][]bridge.Planned, len(r.targets)), make([]bridge.Status, len(r.targets))
	err := r.runWhile(ctx, timeout, nil, func(ctx context.Context) error {
		ctx, giveUp := context.WithCancelCause(ctx)
		defer giveUp(nil)
		go r.watchRefusals(ctx, giveUp)
		err := atOnce(len(r.targets), func(i int) error {
			var err error
			if plans[i], statuses[i], err = r.targets[i].loop.Plan(ctx); err != nil {
				return fmt.Errorf("target %s: %w", r.targets[i].name, err)
			}
			return nil
		})
		if errors.Is(context.Cause(ctx), errRefused) {
			return cause.Unreachablef("nothing was compared: %s", r.missing(statuses))
		}
		return err
	})
	err = r.judge(ctx, err, statuses, timeout)
	if e, ok := errors.AsType[*cause.Error](err); ok && e.Kind == cause.Findings { // nothing was compared: nothing is known to differ
		err = cause.New(cause.Unreachable, e.Err)
	}
	return plans, statuses, err
}

var errRefused = errors.New("a registry refuses connections")

// refusedFor is for how long a registry has to refuse connections until a plan ends: all
// its servers were tried by then.
const refusedFor = 5 * time.Second

// watchRefusals ends a plan once no server of some registry accepts a connection: to wait
// for its timeout would show nothing else.
func (r *runtime) watchRefusals(ctx context.Context, giveUp context.CancelCauseFunc) {
	ticker := time.NewTicker(refusedFor / 50)
	defer ticker.Stop()
	since := make(map[string]time.Time) // by registry
	for {
		now := time.Now()
		for name, refused := range r.refusals() {
			switch began, before := since[name]; {
			case !refused:
				delete(since, name)
			case !before:
				since[name] = now
			case now.Sub(began) >= refusedFor:
				giveUp(errRefused)
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// refusals reports of each source and target whether its last connection was refused.
func (r *runtime) refusals() map[string]bool {
	const refused = "connection refused"
	all := make(map[string]bool)
	for _, s := range r.sources {
		state := s.State()
		all["source "+s.name] = !state.Connected && strings.Contains(state.LastError, refused)
	}
	for _, s := range r.targets {
		state := s.State()
		all["target "+s.name] = !state.Connected && strings.Contains(state.LastError, refused)
	}
	return all
}

// atOnce calls f for n things at the same time.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { errs[i] = f(i) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// judge returns the error of a pass with its cause.
func (r *runtime) judge(ctx context.Context, err error, statuses []bridge.Status, timeout time.Duration) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, new(*cause.Error)):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return cause.Unreachablef("not complete after %s: %s", timeout, r.missing(statuses))
	}
	return cause.New(cause.Findings, err)
}

// missing says on one line what a runtime still waits for.
func (r *runtime) missing(all []bridge.Status) string {
	var parts []string
	for _, s := range r.sources {
		if problem := s.problem(); problem != "" {
			parts = append(parts, "source "+s.name+": "+problem)
		}
	}
	for _, i := range r.registryIDs {
		if err := i.problem(); err != nil {
			parts = append(parts, fmt.Sprintf("id of %s: %v", i.name, err))
		}
	}
	for i, st := range all {
		name := r.targets[i].name
		switch {
		case !st.Listed:
			parts = append(parts, fmt.Sprintf("target %s: %s", name, cmp.Or(r.targets[i].State().LastError, st.LastError, "not listed yet")))
		case waiting(st):
			parts = append(parts, fmt.Sprintf("target %s: deletions wait for the guard's time; give more --timeout than guard.settle", name))
		case st.LastError != "":
			parts = append(parts, fmt.Sprintf("target %s: %s", name, st.LastError))
		}
	}
	if len(parts) == 0 {
		return "writes are still due; give more --timeout"
	}
	return strings.Join(parts, "; ")
}

// waiting reports whether a deletion of the loop waits for its time.
func waiting(st bridge.Status) bool {
	return slices.ContainsFunc(st.Services, func(s bridge.ServiceStatus) bool { return s.Reason == bridge.ReasonWaiting })
}
