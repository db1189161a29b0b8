package kitex

import (
	"log/slog"

	"github.com/cloudwego/kitex/pkg/klog"

	"github.com/xds-bridge/xds-bridge/internal/gostlog"
)

// Log returns a logger for client.Options that writes through Kitex's current logger, even if
// that is replaced later.
func Log(level slog.Leveler) *slog.Logger {
	return slog.New(gostlog.New(func() gostlog.Logger { return klog.DefaultLogger() }, level))
}
