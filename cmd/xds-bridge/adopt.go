package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

type adoptOptions struct {
	from               string
	unsigned, unmarked bool
	target             string
	yes                bool
	output             output
	timeout            time.Duration
}

func (c *cli) adoptCommand() *cobra.Command {
	var o adoptOptions
	cmd := &cobra.Command{
		Use: "adopt (--from OWNER | --unsigned | --unmarked)", Short: "Take entries over as our own", Args: noArgs,
		Long: "adopt puts the mark of the configuration's owner on entries that stay as they are\n" +
			"otherwise. Each is replaced in one step, so that consumers miss none.\n\n" +
			"  --from OWNER  those of another owner, such as the one before a new id; its bridge\n" +
			"                has to be stopped\n" +
			"  --unsigned    our own from before ownerKeyFile was set, or from before a key in it\n" +
			"                was dropped\n" +
			"  --unmarked    those without a mark that are what we would write but for it; this\n" +
			"                reads the sources\n\n" +
			"It only tells what it would do, unless --yes is given.",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.adopt(cmd.Context(), o) },
	}
	outputFlag(cmd, &o.output)
	cmd.Flags().StringVar(&o.from, "from", "", "whose entries")
	cmd.Flags().BoolVar(&o.unsigned, "unsigned", false, "our own that are not signed by a key of ownerKeyFile")
	cmd.Flags().BoolVar(&o.unmarked, "unmarked", false, "those without a mark that are what we would write")
	cmd.Flags().StringVar(&o.target, "target", "", "only this registry of the configuration")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do it; without it nothing is written")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long it may take")
	return cmd
}

func (c *cli) adopt(ctx context.Context, o adoptOptions) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	signs, _, err := signer(cfg.OwnerKeys)
	if err != nil {
		return usage("ownerKeyFile: %w", err)
	}
	a := &adoption{
		takeover: &takeover{}, owner: metadata.OwnerMark(cfg.Owner), signer: signs,
		wanted: make(map[registry.Entry]registry.Entry),
	}
	w := operation{
		action: "adopt", after: "marked as owner " + cfg.Owner, gone: o.from, target: o.target,
		lasting: true, yes: o.yes, timeout: o.timeout, taking: a.takeover, change: a.change,
	}
	switch way := o.way(); {
	case way == "from" && o.from != cfg.Owner:
		a.owners = []string{metadata.OwnerMark(o.from)}
	case way == "unsigned" && signs != nil:
		a.owners = metadata.Disowned(a.owner)
	case way == "unsigned":
		return usage("adopt --unsigned is for entries from before ownerKeyFile was set; it is not set")
	case way == "unmarked":
		a.owners, w.prepare = []string{""}, a.plan
	default:
		return usage("adopt needs one of --from with another owner than %q, --unsigned and --unmarked", cfg.Owner)
	}
	return c.doWork(ctx, w, cfg.Owner, o.output)
}

// way returns the one flag that says what is adopted; empty where it is not one.
func (o adoptOptions) way() string {
	var ways []string
	for way, set := range map[string]bool{"from": o.from != "", "unsigned": o.unsigned, "unmarked": o.unmarked} {
		if set {
			ways = append(ways, way)
		}
	}
	if len(ways) != 1 {
		return ""
	}
	return ways[0]
}

// adoption puts our mark on entries.
type adoption struct {
	*takeover
	owner  string // ours, as registry.Held.Owner tells it
	signer *metadata.Signer
	wanted map[registry.Entry]registry.Entry // of those without a mark: what we would write in their place
}

// plan finds out which entries without a mark are what we would write but for
// it.
func (a *adoption) plan(ctx context.Context, h *runtime) error {
	for _, t := range h.sinks {
		plans, _, err := t.loop.Plan(ctx)
		if err != nil {
			return unreachable("target %s: not everything could be read: %w", t.name, err)
		}
		for _, p := range plans {
			for _, w := range p.Change.Put {
				if w.Old != nil && metadata.Bare(w.Old.Entry).Value == metadata.Bare(w.New).Value {
					a.wanted[w.Old.Entry] = w.New
				}
			}
		}
	}
	return nil
}

func (a *adoption) change(g registry.Group, held []registry.Held) registry.Change {
	change := registry.Change{Group: g}
	for _, h := range held {
		if h.Owner == a.owner {
			change.Want = append(change.Want, h.Entry)
			continue
		}
		if next, ok := a.ours(h); ok {
			change.Put = append(change.Put, registry.Write{New: next, Old: &h})
			change.Want = append(change.Want, next)
		}
	}
	return change
}

// ours returns an entry as ours, false where it is not taken over.
func (a *adoption) ours(h registry.Held) (registry.Entry, bool) {
	if !a.takes(h.Owner) {
		return registry.Entry{}, false
	}
	if h.Owner == "" {
		next, ok := a.wanted[h.Entry]
		return next, ok
	}
	next := metadata.Remark(h.Entry, func(m metadata.Mark) metadata.Mark {
		m.Owner, m.Signature = a.owner, ""
		return m
	})
	return a.signer.Sign(next), true
}
