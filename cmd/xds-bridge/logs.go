package main

import (
	"log/slog"
	"slices"
	"time"

	gost "github.com/dubbogo/gost/log/logger"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/gostlog"
)

// logger returns the logger of the configuration, unless flags say otherwise.
// A quiet one logs errors alone.
func (c *cli) logger(l config.Log, quiet bool) (*slog.Logger, error) { //nolint:revive // a plan is quiet, a run is not
	level, format := orWord(c.logLevel, l.Level), orWord(c.logFormat, l.Format)
	if quiet && c.logLevel == "" {
		level = "error" // what matters is said at the end
	}
	var least slog.Level
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, level) || least.UnmarshalText([]byte(level)) != nil {
		return nil, usage("--log-level %q: write debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: least, ReplaceAttr: utc}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(c.err, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(c.err, options)), nil
	case "gost":
		gost.SetLoggerLevel(level)
		return slog.New(gostlog.New(func() gostlog.Logger { return gost.GetLogger() }, least)), nil
	}
	return nil, usage("--log-format %q: write text, json or gost", format)
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
