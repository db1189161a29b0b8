// Package app is the program as a library: it makes the components of a
// configuration and runs them, and does what the commands do. It neither parses
// flags nor prints.
package app

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"time"

	gost "github.com/dubbogo/gost/log/logger"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/gostlog"
	"github.com/xds-bridge/xds-bridge/internal/redact"
)

// A Program is what all commands share: the configuration that is meant, and where logs
// and remarks go.
type Program struct {
	File      string           // the configuration
	Env       config.Lookup    // the environment that it may refer to
	Build     Build            // of the binary
	LogOutput io.Writer        // where logs go
	LogLevel  string           // in place of log.level; empty: as the configuration has it
	LogFormat string           // in place of log.format; empty: as the configuration has it
	Hangup    <-chan os.Signal // has the configuration read again; nil: nothing does
	Remark    func(string)     // shows a line that is no result; nil: nobody sees it
}

func (p *Program) remark(format string, args ...any) {
	if p.Remark != nil {
		p.Remark(fmt.Sprintf(format, args...))
	}
}

// A Cause says why something failed, by what can be done about it.
type Cause int

// The causes of an Error.
const (
	CauseFindings    Cause = iota // something was found, or was not done
	CauseUsage                    // the command line or the configuration is wrong
	CauseUnreachable              // a registry cannot be reached or read, or did not answer in time
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

// ReadBuild returns what this binary is. The version is what the linker set;
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

// Logger returns a logger as a configuration says, unless flags say otherwise.
func (p *Program) Logger(l config.Log) (*slog.Logger, error) {
	log, _, err := p.logger(l, false)
	return log, err
}

// logger returns the logger of the configuration, unless flags say otherwise,
// and its level, which may be changed while it is used. If errorsOnly, it logs errors
// alone.
func (p *Program) logger(l config.Log, errorsOnly bool) (*slog.Logger, *slog.LevelVar, error) { //nolint:revive // a plan logs errors alone, a run does not
	level, format := cmp.Or(p.LogLevel, l.Level), cmp.Or(p.LogFormat, l.Format)
	if errorsOnly && p.LogLevel == "" {
		level = "error" // the command prints the rest
	}
	least := new(slog.LevelVar)
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, level) || least.UnmarshalText([]byte(level)) != nil {
		return nil, nil, usage("--log-level %q: write debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: least, ReplaceAttr: utc}
	var lines slog.Handler
	switch format {
	case "text":
		lines = slog.NewTextHandler(p.LogOutput, options)
	case "json":
		lines = slog.NewJSONHandler(p.LogOutput, options)
	case "gost":
		gost.SetLoggerLevel(level)
		lines = gostlog.New(func() gostlog.Logger { return gost.GetLogger() }, least)
	default:
		return nil, nil, usage("--log-format %q: write text, json or gost", format)
	}
	return slog.New(redact.Handler(lines)), least, nil
}

// relevel makes the level what the configuration says by now, unless flags say
// otherwise.
func (p *Program) relevel(least *slog.LevelVar, l config.Log) {
	level := cmp.Or(p.LogLevel, l.Level)
	if least.UnmarshalText([]byte(level)) == nil && cmp.Or(p.LogFormat, l.Format) == "gost" {
		gost.SetLoggerLevel(level)
	}
}

// utc writes times as RFC 3339 with milliseconds, in UTC.
func utc(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.String(slog.TimeKey, a.Value.Time().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	}
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().Round(time.Microsecond).String())
	}
	return a
}
