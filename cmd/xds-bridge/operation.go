package main

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/internal/app"
)

func operationFlags(cmd *cobra.Command, o *app.OperationOptions, form *output, yes string) {
	outputFlag(cmd, form)
	cmd.Flags().StringVar(&o.Target, "target", "", "only this registry of the configuration")
	cmd.Flags().BoolVar(&o.Yes, "yes", false, yes+"; without it nothing is written")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 5*time.Minute, "how long it may take")
}

// operated prints what was or would be done. Nothing is printed where nothing was
// found out.
func (c *cli) operated(d *app.Operation, err error, form output) error {
	if d == nil {
		return err
	}
	if form != outputJSON {
		c.printWork(d)
		return err
	}
	if printed := c.document(d); err == nil {
		err = printed
	}
	return err
}

func (c *cli) printWork(d *app.Operation) {
	done, left := d.Entries, d.Left
	c.printSteps(done)
	if len(left) > 0 {
		c.warn("as they were, or not known:")
		c.printSteps(left)
	}
	of := ""
	if d.Action == "purge" {
		of = " of owner " + d.Owner
		if d.Bridge != "" {
			of = " of bridge " + d.Bridge + of
		}
	}
	switch {
	case len(done)+len(left) == 0:
		c.say("There is nothing%s to %s.", of, d.Action)
	case d.Asked:
		c.say("%d entries%s: %s.", len(done), of, d.After)
	default:
		c.say("%d entries%s would be %s; give --yes to do it.", len(done), of, d.After)
	}
}

func (c *cli) printSteps(steps []app.Step) {
	where := ""
	for _, s := range steps {
		if at := s.Target + "  " + s.Group; at != where {
			c.say("%s", at)
			where = at
		}
		c.show(red, "  - %s", cmp.Or(s.Old, s.Key))
		if s.New != "" {
			c.show(green, "  + %s", s.New)
		}
		if s.Failed != "" {
			c.warn("    %s", s.Failed)
		}
	}
}
