package gokit

import (
	"log/slog"

	"github.com/go-kit/log"
	kit "github.com/go-kit/log/level"

	"github.com/xds-bridge/xds-bridge/plugins/internal/logto"
)

// Log returns a logger for client.Options that writes through a Go kit logger.
func Log(l log.Logger, level slog.Leveler) *slog.Logger {
	return logto.New(level, func(at slog.Level, message string, pairs []any) error {
		return levelled(l, at).Log(append([]any{"msg", message}, pairs...)...)
	})
}

func levelled(l log.Logger, at slog.Level) log.Logger {
	switch {
	case at >= slog.LevelError:
		return kit.Error(l)
	case at >= slog.LevelWarn:
		return kit.Warn(l)
	case at >= slog.LevelInfo:
		return kit.Info(l)
	default:
		return kit.Debug(l)
	}
}
