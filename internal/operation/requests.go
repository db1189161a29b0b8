package operation

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/cause"
	"github.com/xds-bridge/xds-bridge/internal/projection"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// PurgeOptions say whose entries go.
type PurgeOptions struct {
	Owner  string // empty: that of the configuration
	Bridge string // empty: all of the owner's
	Options
}

// Purge returns a request to delete everything that an owner or a bridge wrote. The
// configuration is loaded if the options do not name the owner of a bridge.
func Purge(o PurgeOptions, load func() (*config.Config, error)) (*Request, error) {
	if o.Owner == "" && o.Bridge == "" {
		return nil, cause.Usagef("purge requires --owner or --bridge, whose entries have to go")
	}
	request := &Request{action: "purge", after: "deleted", owner: o.Owner, absent: o.Owner, bridge: o.Bridge, Options: o.Options}
	if o.Bridge != "" {
		if strings.ContainsAny(strings.TrimPrefix(o.Bridge, projection.MarkPrefix), ": ") {
			return nil, cause.Usagef("%q is no bridge; write its name, or its mark as in mark:r4k", o.Bridge)
		}
		cfg, err := load()
		if err != nil {
			return nil, err
		}
		request.owner = cmp.Or(o.Owner, cfg.Owner)
		request.absent = request.owner
		configured := slices.ContainsFunc(cfg.Bridges, func(x config.Bridge) bool { return projection.SameBridge(x.Name, o.Bridge) })
		if !configured && metadata.OwnerMark(request.owner) == metadata.OwnerMark(cfg.Owner) {
			request.absent = "" // nobody writes them again
		}
	}
	mark := metadata.OwnerMark(request.owner)
	request.change = func(g registry.Group, held []registry.Stored) registry.Change {
		change := registry.Change{Group: g}
		for _, h := range held {
			if h.Owner == mark && (o.Bridge == "" || projection.IsOfBridge(o.Bridge, h.Entry, held)) {
				change.Delete = append(change.Delete, h)
			}
		}
		return change
	}
	request.shown = request.owner
	return request, nil
}

// ReleaseOptions say whose entries are left to nobody.
type ReleaseOptions struct {
	Owner string
	Options
}

// Release returns a request to remove the marks of an owner from its entries, which stay.
func Release(o ReleaseOptions) (*Request, error) {
	if o.Owner == "" {
		return nil, cause.Usagef("release requires --owner, the owner whose marks have to go")
	}
	mark := metadata.OwnerMark(o.Owner)
	owners := append(metadata.Disowned(mark), mark)
	released := &OwnerSet{owners: owners}
	return &Request{
		action: "release", after: "left to nobody", shown: o.Owner, owner: o.Owner, absent: o.Owner,
		persistentOnly: true, Options: o.Options, adopted: released,
		change: func(g registry.Group, held []registry.Stored) registry.Change {
			change := registry.Change{Group: g}
			for _, h := range held {
				if released.Has(h.Owner) {
					change.Put = append(change.Put, registry.Write{New: metadata.Bare(h.Entry), Old: &h})
				}
			}
			return change
		},
	}, nil
}

// AdoptOptions say which entries are adopted; one of the first three is set.
type AdoptOptions struct {
	From               string // an owner
	Unsigned, Unmarked bool
	Options
}

// Adopt returns a request to put the mark of the configuration's owner on entries of
// others. The signer is nil if marks are not signed.
func Adopt(cfg *config.Config, signer *metadata.Signer, o AdoptOptions) (*Request, error) {
	a := &adoption{
		OwnerSet: &OwnerSet{}, owner: metadata.OwnerMark(cfg.Owner), signer: signer,
		desired: make(map[registry.Entry]registry.Entry),
	}
	request := &Request{
		action: "adopt", shown: cfg.Owner, after: "marked as owner " + cfg.Owner, absent: o.From,
		persistentOnly: true, Options: o.Options, adopted: a.OwnerSet, change: a.change,
	}
	switch flag := o.flag(); {
	case flag == "from" && o.From != cfg.Owner:
		a.owners = []string{metadata.OwnerMark(o.From)}
	case flag == "unsigned" && signer != nil:
		a.owners = metadata.Disowned(a.owner)
	case flag == "unsigned":
		return nil, cause.Usagef("adopt --unsigned is for entries from before ownerKeyFile was set; it is not set")
	case flag == "unmarked":
		a.owners, request.prepare = []string{""}, a.plan
	default:
		return nil, cause.Usagef("adopt requires one of --from with another owner than %q, --unsigned and --unmarked", cfg.Owner)
	}
	return request, nil
}

// flag returns the one flag that says what is adopted; empty if it is not one.
func (o AdoptOptions) flag() string {
	var flags []string
	for flag, set := range map[string]bool{"from": o.From != "", "unsigned": o.Unsigned, "unmarked": o.Unmarked} {
		if set {
			flags = append(flags, flag)
		}
	}
	if len(flags) != 1 {
		return ""
	}
	return flags[0]
}

// An adoption puts our mark on entries.
type adoption struct {
	*OwnerSet
	owner   string // ours, as registry.Stored.Owner has it
	signer  *metadata.Signer
	desired map[registry.Entry]registry.Entry // of those without a mark: what we would write in their place
}

// plan finds out which entries without a mark are what we would write but for
// it.
func (a *adoption) plan(ctx context.Context, targets []Target) error {
	for _, t := range targets {
		plans, _, err := t.Plan(ctx)
		if err != nil {
			return cause.Unreachablef("target %s: not everything could be read: %w", t.Name, err)
		}
		for _, p := range plans {
			for _, w := range p.Change.Put {
				if w.Old != nil && metadata.Bare(w.Old.Entry).Value == metadata.Bare(w.New).Value {
					a.desired[w.Old.Entry] = w.New
				}
			}
		}
	}
	return nil
}

func (a *adoption) change(g registry.Group, held []registry.Stored) registry.Change {
	change := registry.Change{Group: g}
	for _, h := range held {
		if h.Owner == a.owner {
			change.Want = append(change.Want, h.Entry)
			continue
		}
		if next, ok := a.adopt(h); ok {
			change.Put = append(change.Put, registry.Write{New: next, Old: &h})
			change.Want = append(change.Want, next)
		}
	}
	return change
}

// adopt returns an entry as ours, false if it is not adopted.
func (a *adoption) adopt(h registry.Stored) (registry.Entry, bool) {
	if !a.Has(h.Owner) {
		return registry.Entry{}, false
	}
	if h.Owner == "" {
		next, ok := a.desired[h.Entry]
		return next, ok
	}
	next := metadata.Remark(h.Entry, func(m metadata.Mark) metadata.Mark {
		m.Owner, m.Leaving, m.Signature = a.owner, false, ""
		return m
	})
	return a.signer.Sign(next), true
}
