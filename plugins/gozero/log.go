package gozero

import (
	"fmt"
	"log/slog"

	"github.com/zeromicro/go-zero/core/logx"

	"github.com/xds-bridge/xds-bridge/plugins/internal/logto"
)

// Log returns a logger for client.Options that writes through logx. Warnings become errors,
// because logx has no level for them.
func Log(level slog.Leveler) *slog.Logger {
	return logto.New(level, func(at slog.Level, message string, pairs []any) error {
		var fields []logx.LogField
		for n := 0; n+1 < len(pairs); n += 2 {
			fields = append(fields, logx.Field(fmt.Sprint(pairs[n]), pairs[n+1]))
		}
		switch {
		case at >= slog.LevelWarn:
			logx.Errorw(message, fields...)
		case at >= slog.LevelInfo:
			logx.Infow(message, fields...)
		default:
			logx.Debugw(message, fields...)
		}
		return nil
	})
}
