package dubbogo

import (
	"log/slog"

	"github.com/dubbogo/gost/log/logger"

	"github.com/xds-bridge/xds-bridge/internal/gostlog"
)

// Log returns a logger for client.Options that writes to dubbo-go's own log: through the current
// logger of dubbogo/gost, even if that is replaced later.
func Log(level slog.Leveler) *slog.Logger {
	return slog.New(gostlog.New(func() gostlog.Logger { return logger.GetLogger() }, level))
}
