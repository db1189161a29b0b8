package dubbogo

import (
	"log/slog"

	"github.com/dubbogo/gost/log/logger"

	"github.com/xds-bridge/xds-bridge/internal/gostlog"
)

// Log returns a logger for client.Options whose lines appear where a user of
// dubbo-go looks for them: it writes through the logger of dubbogo/gost, also
// after that was replaced.
func Log(level slog.Leveler) *slog.Logger {
	return slog.New(gostlog.New(func() gostlog.Logger { return logger.GetLogger() }, level))
}
