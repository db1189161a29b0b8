// Package app is the program as a library: it makes the components of a
// configuration and runs them, and does what the commands do. It neither parses
// flags nor prints.
package app

import (
	"cmp"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"runtime/debug"

	"github.com/xds-bridge/xds-bridge/config"
)

// A Program is what the command line says of every command: which configuration
// is meant, and where logs and notes go.
type Program struct {
	File      string           // the configuration
	Env       config.Lookup    // the environment that it may refer to
	Build     Build            // of the binary
	LogOutput io.Writer        // where logs go
	LogLevel  string           // in place of log.level; empty: as the configuration has it
	LogFormat string           // in place of log.format; empty: as the configuration has it
	Hangup    <-chan os.Signal // has the configuration read again; nil: nothing does
	Note      func(string)     // shows a line that is no result; nil: nobody sees it
}

func (p *Program) note(format string, args ...any) {
	if p.Note != nil {
		p.Note(fmt.Sprintf(format, args...))
	}
}

// A Cause says why something failed, by what can be done about it.
type Cause int

// The causes of an Error.
const (
	CauseFindings    Cause = iota // something was found, or was not done
	CauseUsage                    // the command line or the configuration is wrong
	CauseUnreachable              // a peer cannot be reached, or did not answer in time
)

// An Error is an error with its Cause. Its text is that of Err.
type Error struct {
	Cause Cause
	Err   error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its cause.
func (e *Error) Unwrap() error { return e.Err }

func usage(format string, args ...any) error {
	return &Error{CauseUsage, fmt.Errorf(format, args...)}
}

func unreachable(format string, args ...any) error {
	return &Error{CauseUnreachable, fmt.Errorf(format, args...)}
}

// A Build says what a binary is.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Date     string `json:"date"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ReadBuild returns what this binary is. The version is what the linker noted;
// empty, the build information has it.
func ReadBuild(version string) Build {
	b := Build{Version: "unknown", Go: goruntime.Version(), Platform: goruntime.GOOS + "/" + goruntime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		b.Version = cmp.Or(version, b.Version)
		return b
	}
	if b.Version = cmp.Or(version, info.Main.Version); b.Version == "" || b.Version == "(devel)" {
		b.Version = "development"
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Date = s.Value
		}
	}
	return b
}
