package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/kind"
	"github.com/xds-bridge/xds-bridge/internal/preflight"
)

type validateOptions struct {
	files  []string
	output output
	skip   bool // do not check the files that the configuration names
}

func validateCommand(c *cli) *cobra.Command {
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "validate [FILE...]",
		Short: "Check a configuration file offline",
		RunE: func(_ *cobra.Command, args []string) error {
			if o.files = args; len(args) == 0 {
				o.files = []string{c.file}
			}
			return runValidate(c, o)
		},
	}
	outputFlag(cmd, &o.output)
	cmd.Flags().BoolVar(&o.skip, "skip-files", false,
		"do not check secrets and certificates, which may be on another machine")
	return cmd
}

// verdict is the result of validate for one file.
type verdict struct {
	File     string        `json:"file"`
	Valid    bool          `json:"valid"`
	Errors   config.Errors `json:"errors"`
	Warnings config.Errors `json:"warnings"` // do not make the file invalid
}

func runValidate(c *cli, o validateOptions) error {
	var all config.Errors
	verdicts := make([]verdict, 0, len(o.files))
	for _, file := range o.files {
		errs, warnings := checkConfig(c, file, o.skip)
		verdicts = append(verdicts, verdict{File: file, Valid: len(errs) == 0, Errors: errs, Warnings: warnings})
		all = append(all, errs...)
	}
	err := c.result(o.output, verdicts, func() {
		for _, v := range verdicts {
			if v.Valid {
				c.say("%s: valid", v.File)
			}
			for _, w := range v.Warnings {
				c.remark("warning: %s", w.Error())
			}
		}
	})
	switch {
	case err != nil:
		return err
	case o.output == outputText && len(all) > 0:
		return all
	}
	return exitWith(codeIf(len(all) > 0, exitUsage))
}

// checkConfig returns the errors and warnings of a file. Both lists are not nil.
//
//nolint:revive // skip is a flag on the command line
func checkConfig(c *cli, file string, skip bool) (errs, warnings config.Errors) {
	cfg, err := config.Load(file, c.env)
	if errs, ok := errors.AsType[config.Errors](err); ok {
		return errs, config.Errors{}
	}
	errs = config.Errors{}
	if wrong := kind.CheckFiles(cfg); !skip && len(wrong) > 0 {
		c.remark("%s names files that are missing or invalid on this machine; "+
			"if they are on another machine, set --skip-files", file)
		errs = append(errs, wrong...)
	}
	warnings = append(config.Errors{}, cfg.Warnings()...)
	if !skip {
		warnings = append(warnings, kind.FileWarnings(cfg)...)
		warnings = append(warnings, preflight.StorageErrors(cfg)...)
	}
	return errs, warnings
}
