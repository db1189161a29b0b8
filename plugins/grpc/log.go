package grpc

import (
	"log/slog"

	"google.golang.org/grpc/grpclog"

	"github.com/xds-bridge/xds-bridge/internal/gostlog"
)

// Log returns a logger for client.Options that writes to gRPC's log as the component
// xdsbridge. GRPC_GO_LOG_SEVERITY_LEVEL applies. Debug records are written if
// GRPC_GO_LOG_VERBOSITY_LEVEL is at least 2.
func Log(level slog.Leveler) *slog.Logger {
	l := lines{grpclog.Component(Scheme)}
	return slog.New(gostlog.New(func() gostlog.Logger { return l }, level))
}

type lines struct{ grpclog.DepthLoggerV2 }

func (l lines) Warn(args ...any) { l.Warning(args...) }

func (l lines) Debug(args ...any) {
	if l.V(2) {
		l.Info(args...)
	}
}
