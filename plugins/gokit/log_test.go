package gokit_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/go-kit/log"

	"github.com/xds-bridge/xds-bridge/plugins/gokit"
)

func TestLog_GoKit(t *testing.T) {
	var out bytes.Buffer
	l := gokit.Log(log.NewLogfmtLogger(&out), slog.LevelDebug).With("registry", "mesh")
	l.Debug("one")
	l.Info("two", "services", 3)
	l.Warn("three")
	l.Error("four")
	const want = "level=debug msg=one registry=mesh\nlevel=info msg=two registry=mesh services=3\nlevel=warn msg=three registry=mesh\nlevel=error msg=four registry=mesh\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}
