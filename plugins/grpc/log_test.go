package grpc_test

import (
	"bytes"
	"io"
	"log/slog"
	"regexp"
	"testing"

	"google.golang.org/grpc/grpclog"

	xgrpc "github.com/xds-bridge/xds-bridge/plugins/grpc"
)

func TestLog_GRPC(t *testing.T) {
	var info, warning bytes.Buffer
	grpclog.SetLoggerV2(grpclog.NewLoggerV2WithVerbosity(&info, &warning, io.Discard, 2))
	t.Cleanup(func() { grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) })
	l := xgrpc.Log(slog.LevelDebug).With("registry", "mesh")
	l.Debug("one")
	l.Info("two", "services", 3)
	l.Warn("three")
	for want, out := range map[string]*bytes.Buffer{
		`(?s)INFO: .*\[xdsbridge\] ?one registry=mesh\n.*INFO: .*\[xdsbridge\] ?two registry=mesh services=3\n`: &info,
		`WARNING: .*\[xdsbridge\] ?three registry=mesh\n`:                                                       &warning,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("got\n%s\nwant %s", out, want)
		}
	}
}
