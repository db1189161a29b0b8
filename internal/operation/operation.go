// Package operation changes entries once, on an operator's behalf and without a running
// bridge: it purges, adopts and releases them. What is done is told as steps, as a plan is.
//
//	requests.go    what each operation does to an entry
//	operation.go   how a request is carried out in every target, and read back
//	owner.go       which owners are known, and whose bridges still run
//	difference.go  the steps of a plan
package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/audit"
	"github.com/xds-bridge/xds-bridge/internal/cause"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// An Target is a target in which entries are changed.
type Target struct {
	registry.Target

	Name       string
	Served     bool     // its entries exist as long as the bridge that serves them
	Persistent bool     // its entries outlive the connection
	Bridges    []string // what identifies the bridges that lead there

	// Owners remembers which owners wrote there; nil: nothing does.
	Owners Owners

	// Plan returns what the bridges that lead there would write.
	Plan func(ctx context.Context) ([]bridge.Planned, bridge.Status, error)
}

// Owners are the owners that a target remembers.
type Owners interface {
	// Alive returns which process of an owner runs; empty: none.
	Alive(ctx context.Context, owner string) (string, error)

	// Forget forgets an owner, and bridges that lead to the target.
	Forget(ctx context.Context, owner string, bridges []string) error

	// Owners returns the names of all owners.
	Owners(ctx context.Context) ([]string, error)
}

// An Session is what a request is carried out over: connections that are up.
type Session struct {
	All        []Target // of the configuration
	Chosen     []Target // those in which the request is carried out
	Owner      string   // as whom it is done
	Configured string   // the owner of the configuration
	Audit      *audit.Log
}

// An Request is what an operator wants done to entries without a running bridge:
// purge, adopt or release. It leads to a Result.
type Request struct {
	action         string // as the audit calls it
	after          string // what the entries are afterwards
	shown          string // the owner that the result names
	owner          string // as whom it is done; empty: as the configuration's
	absent         string // no bridge of this owner may run; unless bridge is set, it is forgotten once all of its entries went; empty: nobody
	bridge         string // of whose entries alone it is done; empty: of all
	persistentOnly bool   // only in targets whose entries outlive the connection
	adopted        *OwnerSet
	change         func(registry.Group, []registry.Stored) registry.Change
	prepare        func(context.Context, []Target) error // before the targets are read; nil: nothing
	Options
}

// Options say where something is done to entries, and whether it is.
type Options struct {
	Target  string // empty: every one of the configuration
	Yes     bool   // do it; else only report what would be done
	Timeout time.Duration
}

// A Result is what was done to entries, or without yes would be.
type Result struct {
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

// As returns as whom a request is carried out; empty: as the owner of the configuration.
func (request *Request) As() string { return request.owner }

// Adopted returns the owners whose entries are changed as if they were ours.
func (request *Request) Adopted() *OwnerSet {
	if request.adopted == nil {
		return &OwnerSet{}
	}
	return request.adopted
}

// ReadsSources reports whether the request depends on what the sources report.
func (request *Request) ReadsSources() bool { return request.prepare != nil }

// Do carries a request out in every chosen target. The session is opened by a
// function, which closes it once what it calls returns. Beside an error it returns what
// was found out before; nil: nothing.
func (request *Request) Do(ctx context.Context, open func(context.Context, func(context.Context, Session) error) error) (*Result, error) {
	o := &Result{
		Action: request.action, Owner: request.shown, Entries: []Step{}, Left: []Step{}, Bridge: request.bridge, Asked: request.Yes, After: request.after,
	}
	err := checkOwner(cmp.Or(request.owner, request.absent))
	if err == nil {
		err = open(ctx, func(ctx context.Context, s Session) error {
			if request.prepare != nil {
				if err := request.prepare(ctx, s.All); err != nil {
					return err
				}
			}
			return o.runForKnownOwner(ctx, s, request)
		})
	}
	if err != nil && len(o.Entries)+len(o.Left) == 0 {
		return nil, err
	}
	o.Whole = err == nil
	if err == nil && len(o.Left) > 0 {
		first := o.Left[0]
		err = cause.New(cause.Findings, fmt.Errorf("not done, or not known to be: %s; the first is %s in %s: %s", registry.Counted(len(o.Left), "entry", "entries"), first.Key, first.Group, first.Failed))
	}
	o.Done = request.Yes && err == nil
	return o, err
}

// runForKnownOwner carries a request out, and fails if nothing was found of an owner who
// is unknown to the configuration, to every target and to the mark of every entry.
func (o *Result) runForKnownOwner(ctx context.Context, s Session, request *Request) error {
	names, ok, err := remembered(ctx, s.Chosen) // before the work, at whose end the owner is forgotten
	if err != nil {
		return err
	}
	names = slices.Compact(slices.Sorted(slices.Values(append(names, s.Configured))))
	mark, change := metadata.OwnerMark(request.absent), request.change
	marks := append(metadata.Disowned(mark), mark)
	known := request.absent == "" || !ok || slices.ContainsFunc(names, func(name string) bool { return metadata.OwnerMark(name) == mark })
	tracked := *request
	tracked.change = func(g registry.Group, held []registry.Stored) registry.Change {
		known = known || slices.ContainsFunc(held, func(r registry.Stored) bool { return slices.Contains(marks, r.Owner) })
		return change(g, held)
	}
	if err := o.runInEach(ctx, s, &tracked); err != nil {
		return err
	}
	if !known && len(o.Entries)+len(o.Left) == 0 {
		return unknownOwner(request.absent, names)
	}
	return nil
}

// runInEach carries a request out in one target after the other, until one fails, and
// records in the audit what was done.
func (o *Result) runInEach(ctx context.Context, s Session, request *Request) error {
	for _, t := range s.Chosen {
		part := &Result{}
		err := part.runIn(ctx, t, request)
		o.Entries, o.Left = append(o.Entries, part.Entries...), append(o.Left, part.Left...)
		if request.Yes && (len(part.Entries)+len(part.Left) > 0 || err != nil) {
			s.Audit.Record(ctx, request.entry(s.Owner, t, part, err))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Choose returns the targets in which the work can be done. It remarks on those in which
// it cannot; the file is that of the configuration.
func (request *Request) Choose(targets []Target, file string, remark func(format string, args ...any)) ([]Target, error) {
	var all []Target
	named := false
	for _, t := range targets {
		if request.Target != "" && request.Target != t.Name {
			continue
		}
		named = true
		if reaches(t, request, remark) {
			all = append(all, t)
		}
	}
	switch {
	case !named:
		return nil, cause.Usagef("--target %q is no registry that a bridge of %s writes", request.Target, file)
	case len(all) == 0:
		return nil, cause.Usagef("%s is for registries whose entries stay, such as ZooKeeper; a bridge of %s writes to none", request.action, file)
	}
	return all, nil
}

// reaches reports whether the request can be carried out in a target, and remarks why not.
func reaches(t Target, request *Request, remark func(format string, args ...any)) bool {
	remembers := t.Owners != nil
	switch {
	case t.Served:
		remark("target %s: what is served there goes when the bridge ends that serves it; there is nothing to %s", t.Name, request.action)
		return false
	case !remembers && !t.Persistent && request.persistentOnly:
		remark("target %s: entries there live no longer than the connection of who wrote them; there is nothing to %s", t.Name, request.action)
		return false
	case !remembers && t.Persistent && request.absent != "":
		remark("target %s: whether a bridge of owner %s still runs cannot be seen there; stop it first", t.Name, request.absent)
	}
	return true
}

// runIn carries a request out in one target. It reads everything before it writes. The
// steps are those that were read back, even beside an error.
func (o *Result) runIn(ctx context.Context, t Target, request *Request) error {
	gone, err := t.ownerGone(ctx, request.absent)
	if err != nil {
		return err
	}
	changes, left, err := t.changes(ctx, request)
	if err != nil {
		return err
	}
	o.Left = left
	for _, change := range changes {
		if !request.Yes {
			o.Entries = append(o.Entries, t.steps(request, change)...)
		} else if err := o.apply(ctx, t, request, change); err != nil {
			return cause.Unreachablef("target %s: %w", t.Name, err)
		}
	}
	if request.Yes && t.Owners != nil && gone != "" && request.bridge == "" && len(o.Left) == 0 {
		if err := t.Owners.Forget(ctx, gone, t.Bridges); err != nil {
			return cause.Unreachablef("target %s: %w", t.Name, err)
		}
	}
	return nil
}

// changes returns the change of each group of the target, and a step for each group that
// cannot be read.
func (t *Target) changes(ctx context.Context, request *Request) (changes []registry.Change, left []Step, err error) {
	groups, err := t.Groups(ctx)
	if err != nil {
		return nil, nil, cause.Unreachablef("target %s: %w", t.Name, err)
	}
	misnamed := 0 // entries whose mark is what was given as a name
	for _, g := range groups {
		held, err := t.Read(ctx, g)
		if errors.Is(err, registry.ErrRefused) {
			left = append(left, Step{Target: t.Name, Op: request.action, Group: g.String(), Failed: err.Error()})
			continue
		}
		if err != nil {
			return nil, nil, cause.Unreachablef("target %s: %w", t.Name, err)
		}
		for _, h := range held {
			if request.absent != "" && h.Owner == request.absent {
				misnamed++
			}
		}
		change := request.change(g, held)
		if err := t.checkLive(request, change); err != nil {
			return nil, nil, err
		}
		if !change.Empty() {
			changes = append(changes, change)
		}
	}
	if len(changes) == 0 && misnamed > 0 {
		return nil, nil, cause.Usagef("target %s: owner %s holds nothing, and %s bear %s as their mark; write %s for their owner", t.Name, request.absent, registry.Counted(misnamed, "entry", "entries"), request.absent, metadata.UnnamedOwner(request.absent))
	}
	return changes, left, nil
}

// checkLive returns an error if a change would delete what exists as long as
// the connection of a bridge does, and no longer: only that bridge can withdraw it.
func (t *Target) checkLive(request *Request, change registry.Change) error {
	if t.Owners != nil {
		return nil
	}
	for _, h := range change.Delete {
		if !h.Live && registry.IsEndpoint(h.Key) {
			return cause.Usagef("target %s: a bridge of owner %s still runs: it publishes %s in %s; stop it, and what it publishes goes by itself", t.Name, request.owner, h.Key, change.Group)
		}
	}
	return nil
}

// apply writes one change, and records by what is read back what of it was done. A
// change that was refused, or that came after another's, costs its group alone.
func (o *Result) apply(ctx context.Context, t Target, request *Request, change registry.Change) error {
	failed := t.Write(ctx, change)
	still, err := t.readBack(ctx, request, change)
	for _, step := range t.steps(request, change) {
		switch undone := still[step.Key]; {
		case err != nil:
			step.Failed = "not known: it could not be read back"
		case undone:
			step.Failed = "read back as it was"
			if failed != nil {
				step.Failed += ": " + failed.Error()
			}
		default:
			o.Entries = append(o.Entries, step)
			continue
		}
		o.Left = append(o.Left, step)
	}
	if failed != nil && !errors.Is(failed, registry.ErrConflict) && !errors.Is(failed, registry.ErrRefused) {
		return failed
	}
	return err
}

// readBack returns the keys of a change that are still to be done. A registry
// that shows writes late is asked once more.
func (t *Target) readBack(ctx context.Context, request *Request, change registry.Change) (map[string]bool, error) {
	late := t.Capabilities().VerifyAfter
	for {
		held, err := t.Read(ctx, change.Group)
		if err != nil {
			return nil, err
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
		registry.Sleep(ctx, late)
		late = 0
	}
}

func (t *Target) steps(request *Request, change registry.Change) []Step {
	var steps []Step
	for _, p := range change.Put {
		steps = append(steps, Step{Target: t.Name, Op: request.action, Group: change.Group.String(), Key: p.New.Key, Old: p.Old.Value, New: p.New.Value})
	}
	for _, h := range change.Delete {
		steps = append(steps, Step{Target: t.Name, Op: "delete", Group: change.Group.String(), Key: h.Key, Old: h.Value})
	}
	return steps
}

// entry is what the audit keeps of the work in one target.
func (request *Request) entry(owner string, t Target, part *Result, err error) audit.Entry {
	e := audit.Entry{Who: audit.User(), Action: request.action, Owner: owner, Target: t.Name, Bridge: request.bridge, Subject: cmp.Or(request.bridge, request.absent), Count: len(part.Entries), After: request.after}
	for _, s := range part.Entries {
		e.Before = append(e.Before, s.Group+" "+s.Old)
	}
	if err == nil && len(part.Left) > 0 {
		err = fmt.Errorf("%s as before: %s", registry.Counted(len(part.Left), "entry is", "entries are"), part.Left[0].Failed)
	}
	if err != nil {
		e.Error = err.Error()
		if len(part.Entries) == 0 {
			e.After = "nothing is known to have changed"
		}
	}
	return e
}
