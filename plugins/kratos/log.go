package kratos

import (
	"log/slog"

	"github.com/go-kratos/kratos/v2/log"

	"github.com/xds-bridge/xds-bridge/plugins/internal/logto"
)

// Log returns a logger for client.Options that writes through a Kratos logger.
func Log(l log.Logger, level slog.Leveler) *slog.Logger {
	return logto.New(level, func(at slog.Level, message string, pairs []any) error {
		return l.Log(levelOf(at), append([]any{log.DefaultMessageKey, message}, pairs...)...)
	})
}

func levelOf(l slog.Level) log.Level {
	switch {
	case l >= slog.LevelError:
		return log.LevelError
	case l >= slog.LevelWarn:
		return log.LevelWarn
	case l >= slog.LevelInfo:
		return log.LevelInfo
	default:
		return log.LevelDebug
	}
}
