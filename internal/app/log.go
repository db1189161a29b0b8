package app

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	gost "github.com/dubbogo/gost/log/logger"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/gostlog"
	"github.com/xds-bridge/xds-bridge/internal/redact"
)

// Logger returns a logger as a configuration says, unless flags say otherwise.
func (p *Program) Logger(l config.Log) (*slog.Logger, error) {
	log, _, err := p.logger(l, false)
	return log, err
}

// logger returns the logger of the configuration, unless flags say otherwise,
// and its level, which may be changed while it is used. A quiet one logs errors
// alone.
func (p *Program) logger(l config.Log, quiet bool) (*slog.Logger, *slog.LevelVar, error) { //nolint:revive // a plan is quiet, a run is not
	level, format := cmp.Or(p.LogLevel, l.Level), cmp.Or(p.LogFormat, l.Format)
	if quiet && p.LogLevel == "" {
		level = "error" // what matters is said at the end
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
