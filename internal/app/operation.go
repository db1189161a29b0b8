package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/audit"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An operationRequest is what a person wants done to entries beside any bridge: purge,
// adopt or release. Its result is an Operation.
type operationRequest struct {
	action       string // as the audit calls it
	after        string // what the entries are afterwards
	owner        string // as whom it is done; empty: as the configuration's
	absent       string // no bridge of this owner may run; unless bridge is set, it is forgotten once all of its entries went; empty: nobody
	bridge       string // of whose entries alone it is done; empty: of all
	needsLasting bool   // only in targets whose entries outlive the connection
	adopted      *ownerSet
	change       func(registry.Group, []registry.Held) registry.Change
	prepare      func(context.Context, *runtime) error // before the targets are read; nil: nothing
	OperationOptions
}

// OperationOptions say where something is done to entries, and whether it is.
type OperationOptions struct {
	Target  string // empty: every one of the configuration
	Yes     bool   // do it; else only report what would be done
	Timeout time.Duration
}

// rememberer is a target that remembers owners. Entries stay in it when the
// connection ends that wrote them. They may stay in others too: see
// targetConnection.lasting.
type rememberer interface {
	Alive(ctx context.Context, owner string) (string, error)
	Forget(ctx context.Context, owner string, bridges []string) error
	Owners(ctx context.Context) ([]string, error)
}

// checkOwner refuses what neither names an owner nor is a mark of one.
func checkOwner(owner string) error {
	if strings.Contains(owner, ":") && !metadata.IsUnnamed(owner) {
		return usage("%q is no owner; write its name, or its mark as in mark:r4kok4", owner)
	}
	return nil
}

// operateOnTargets carries a request out in every target, and returns what was or
// would be done, and what was left.
func (p *Program) operateOnTargets(ctx context.Context, request operationRequest) (done, left []Step, err error) {
	if request.adopted == nil {
		request.adopted = &ownerSet{}
	}
	if err := checkOwner(cmp.Or(request.owner, request.absent)); err != nil {
		return nil, nil, err
	}
	cfg, err := p.load()
	if err != nil {
		return nil, nil, err
	}
	r, err := p.runtime(buildOptions{owner: request.owner, errorsOnly: true, dryRun: true, adopted: request.adopted}) //nolint:contextcheck // connections outlive what makes them
	if err != nil {
		return nil, nil, err
	}
	defer r.close()
	sinks, err := p.sinksFor(r, request)
	if err != nil {
		return nil, nil, err
	}
	if request.prepare == nil {
		r.sources, r.registryIDs, r.keyPublishers = nil, nil, nil // nothing has to be known of the sources
	}
	err = r.runWhile(ctx, request.Timeout, nil, func(ctx context.Context) error {
		if request.prepare != nil {
			if err := request.prepare(ctx, r); err != nil {
				return err
			}
		}
		var err error
		done, left, err = r.operateForKnownOwner(ctx, request, sinks, cfg.Owner)
		return err
	})
	return done, left, err
}

// operateOnEach carries it out in one target after the other, until one fails, and
// keeps in the audit what was done.
func (r *runtime) operateOnEach(ctx context.Context, request operationRequest, sinks []*sink) (done, left []Step, err error) {
	for _, t := range sinks {
		is, not, err := t.operate(ctx, request)
		done, left = append(done, is...), append(left, not...)
		if request.Yes && (len(is)+len(not) > 0 || err != nil) {
			r.audit.Record(ctx, request.entry(r.cfg.Owner, t, is, not, err))
		}
		if err != nil {
			return done, left, err
		}
	}
	return done, left, nil
}

// sinksFor returns the targets in which the work can be done.
func (p *Program) sinksFor(r *runtime, request operationRequest) ([]*sink, error) {
	var all []*sink
	named := false
	for _, t := range r.sinks {
		if request.Target != "" && request.Target != t.name {
			continue
		}
		named = true
		if p.reaches(t, request) {
			all = append(all, t)
		}
	}
	switch {
	case !named:
		return nil, usage("--target %q is no registry that a bridge of %s writes", request.Target, p.File)
	case len(all) == 0:
		return nil, usage("%s is for registries whose entries stay, such as ZooKeeper; a bridge of %s writes to none", request.action, p.File)
	}
	return all, nil
}

// reaches reports whether the request can be carried out in a target, and shows why not.
func (p *Program) reaches(t *sink, request operationRequest) bool {
	_, remembers := t.target.(rememberer)
	switch {
	case t.at.listen != "":
		p.remark("target %s: what is served there goes when the bridge ends that serves it; there is nothing to %s", t.name, request.action)
		return false
	case !remembers && !t.lasting && request.needsLasting:
		p.remark("target %s: entries there live no longer than the connection of who wrote them; there is nothing to %s", t.name, request.action)
		return false
	case !remembers && t.lasting && request.absent != "":
		p.remark("target %s: whether a bridge of owner %s still runs cannot be seen there; stop it first", t.name, request.absent)
	}
	return true
}

// operate carries it out in one target. All that it holds is read before anything is
// written. What is returned is what was read back, whatever the error.
func (s *sink) operate(ctx context.Context, request operationRequest) (done, left []Step, err error) {
	k, remembers := s.target.(rememberer)
	gone, err := s.ownerGone(ctx, request.absent)
	if err != nil {
		return nil, nil, err
	}
	changes, left, err := s.changes(ctx, request)
	if err != nil {
		return nil, nil, err
	}
	if !request.Yes {
		for _, change := range changes {
			done = append(done, s.steps(request, change)...)
		}
		return done, left, nil
	}
	for _, change := range changes {
		is, not, err := s.applyChange(ctx, request, change)
		done, left = append(done, is...), append(left, not...)
		if err != nil {
			return done, left, unreachable("target %s: %w", s.name, err)
		}
	}
	if remembers && gone != "" && request.bridge == "" && len(left) == 0 {
		if err := k.Forget(ctx, gone, s.bridges); err != nil {
			return done, left, unreachable("target %s: %w", s.name, err)
		}
	}
	return done, left, nil
}

// ownerGone returns the name of an owner that is gone, or is known by its mark
// alone. It is an error where a bridge of it runs.
func (s *sink) ownerGone(ctx context.Context, owner string) (string, error) {
	k, remembers := s.target.(rememberer)
	if !remembers || owner == "" {
		return owner, nil
	}
	if metadata.IsUnnamed(owner) {
		names, err := k.Owners(ctx)
		if err != nil {
			return "", unreachable("target %s: %w", s.name, err)
		}
		if i := slices.IndexFunc(names, func(name string) bool { return metadata.OwnerMark(name) == metadata.OwnerMark(owner) }); i >= 0 {
			owner = names[i]
		}
	}
	who, err := k.Alive(ctx, owner)
	if err != nil {
		return "", unreachable("target %s: %w", s.name, err)
	}
	if who != "" {
		return "", usage("target %s: a bridge of owner %s still runs: %s; stop it first", s.name, owner, who)
	}
	return owner, nil
}

// changes returns what is to be done in each group of the target, and the groups of
// which that is not known.
func (s *sink) changes(ctx context.Context, request operationRequest) (changes []registry.Change, left []Step, err error) {
	groups, err := s.target.Groups(ctx)
	if err != nil {
		return nil, nil, unreachable("target %s: %w", s.name, err)
	}
	misnamed := 0 // entries whose mark is what was given as a name
	for _, g := range groups {
		held, err := s.target.Read(ctx, g)
		if errors.Is(err, registry.ErrRefused) {
			left = append(left, Step{Target: s.name, Op: request.action, Group: g.String(), Failed: err.Error()})
			continue
		}
		if err != nil {
			return nil, nil, unreachable("target %s: %w", s.name, err)
		}
		for _, h := range held {
			if request.absent != "" && h.Owner == request.absent {
				misnamed++
			}
		}
		change := request.change(g, held)
		if err := s.checkLive(request, change); err != nil {
			return nil, nil, err
		}
		if !change.Empty() {
			changes = append(changes, change)
		}
	}
	if len(changes) == 0 && misnamed > 0 {
		return nil, nil, usage("target %s: owner %s holds nothing, and %d entries bear %s as their mark; write %s for their owner", s.name, request.absent, misnamed, request.absent, metadata.UnnamedOwner(request.absent))
	}
	return changes, left, nil
}

// checkLive returns an error where a change would delete what lives as long as
// the connection of a bridge does, and no longer: only that bridge can withdraw it.
func (s *sink) checkLive(request operationRequest, change registry.Change) error {
	if _, remembers := s.target.(rememberer); remembers {
		return nil
	}
	for _, h := range change.Delete {
		if !h.Live && registry.IsEndpoint(h.Key) {
			return usage("target %s: a bridge of owner %s still runs: it publishes %s in %s; stop it, and what it publishes goes by itself", s.name, request.owner, h.Key, change.Group)
		}
	}
	return nil
}

// applyChange has one change done, and returns by what is read back what of it was. A
// change that was refused, or that another came in between of, costs its group
// alone.
func (s *sink) applyChange(ctx context.Context, request operationRequest, change registry.Change) (done, left []Step, err error) {
	failed := s.target.Write(ctx, change)
	still, err := s.readBack(ctx, request, change)
	for _, step := range s.steps(request, change) {
		switch undone := still[step.Key]; {
		case err != nil:
			step.Failed = "not known: it could not be read back"
			left = append(left, step)
		case undone:
			step.Failed = "read back as it was"
			if failed != nil {
				step.Failed += ": " + failed.Error()
			}
			left = append(left, step)
		default:
			done = append(done, step)
		}
	}
	if failed != nil && !errors.Is(failed, registry.ErrConflict) && !errors.Is(failed, registry.ErrRefused) {
		return done, left, failed //nolint:wrapcheck // the caller names the target
	}
	return done, left, err
}

// readBack returns the keys of a change that are still to be done. A registry
// that shows writes late is asked once more.
func (s *sink) readBack(ctx context.Context, request operationRequest, change registry.Change) (map[string]bool, error) {
	var late time.Duration
	if v, ok := s.target.(registry.Verified); ok {
		late = v.VerifyAfter()
	}
	for {
		held, err := s.target.Read(ctx, change.Group)
		if err != nil {
			return nil, err //nolint:wrapcheck // the caller names the target
		}
		rest, still := request.change(change.Group, held), make(map[string]bool)
		for _, p := range rest.Put {
			still[p.New.Key] = true
		}
		for _, h := range rest.Delete {
			still[h.Key] = true
		}
		if len(still) == 0 || late == 0 {
			return still, nil
		}
		pause(ctx, late)
		late = 0
	}
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// steps returns a change entry by entry.
func (s *sink) steps(request operationRequest, change registry.Change) []Step {
	var steps []Step
	for _, p := range change.Put {
		steps = append(steps, Step{Target: s.name, Op: request.action, Group: change.Group.String(), Key: p.New.Key, Old: p.Old.Value, New: p.New.Value})
	}
	for _, h := range change.Delete {
		steps = append(steps, Step{Target: s.name, Op: "delete", Group: change.Group.String(), Key: h.Key, Old: h.Value})
	}
	return steps
}

// An Operation is what was done to entries, or without yes would be.
type Operation struct {
	Action  string `json:"action"`
	Owner   string `json:"owner"`
	Done    bool   `json:"done"`    // all of it, as it was read back
	Whole   bool   `json:"whole"`   // every target was read; false: there may be more
	Entries []Step `json:"entries"` // done, or without yes to be done
	Left    []Step `json:"left"`    // not done, or it is not known whether they were
	Bridge  string `json:"-"`       // of whose entries alone it is; empty: of all
	Asked   bool   `json:"-"`       // with yes
	After   string `json:"-"`       // what the entries are afterwards
}

// operate carries a request out. What is returned beside an error is what was found out before;
// nil: nothing.
func (p *Program) operate(ctx context.Context, request operationRequest, owner string) (*Operation, error) {
	done, left, err := p.operateOnTargets(ctx, request)
	if err != nil && len(done)+len(left) == 0 {
		return nil, err
	}
	o := &Operation{Action: request.action, Owner: owner, Whole: err == nil, Entries: orNone(done), Left: orNone(left), Bridge: request.bridge, Asked: request.Yes, After: request.after}
	if err == nil && len(left) > 0 {
		err = &Error{CauseFindings, fmt.Errorf("not done, or not known to be: %d entries; the first is %s in %s: %s", len(left), left[0].Key, left[0].Group, left[0].Failed)}
	}
	o.Done = request.Yes && err == nil
	return o, err
}

func orNone(steps []Step) []Step {
	if steps == nil {
		return []Step{}
	}
	return steps
}

// entry is what the audit keeps of the work in one target.
func (request operationRequest) entry(owner string, t *sink, done, left []Step, err error) audit.Entry {
	e := audit.Entry{Who: thisUser(), Action: request.action, Owner: owner, Target: t.name, Bridge: request.bridge, Subject: cmp.Or(request.bridge, request.absent), Count: len(done), After: request.after}
	for _, s := range done {
		e.Before = append(e.Before, s.Group+" "+s.Old)
	}
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d entries are as they were: %s", len(left), left[0].Failed)
	}
	if err != nil {
		e.Error = err.Error()
		if len(done) == 0 {
			e.After = "nothing is known to have changed"
		}
	}
	return e
}
