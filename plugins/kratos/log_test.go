package kratos_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/go-kratos/kratos/v2/log"

	xkratos "github.com/xds-bridge/xds-bridge/plugins/kratos"
)

func TestLog_Kratos(t *testing.T) {
	var out bytes.Buffer
	l := xkratos.Log(log.NewStdLogger(&out), slog.LevelDebug).With("registry", "mesh")
	l.Debug("one")
	l.Info("two", "services", 3)
	l.Warn("three")
	l.Error("four")
	const want = "DEBUG msg=one registry=mesh\nINFO msg=two registry=mesh services=3\nWARN msg=three registry=mesh\nERROR msg=four registry=mesh\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}
