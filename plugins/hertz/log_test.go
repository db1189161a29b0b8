package hertz_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/cloudwego/hertz/pkg/common/hlog"

	"github.com/xds-bridge/xds-bridge/plugins/hertz"
)

// collected is a logger of Hertz that a program might set.
type collected struct {
	hlog.FullLogger
	out bytes.Buffer
}

func (c *collected) Info(v ...any) { c.out.WriteString("info " + v[0].(string) + "\n") } //nolint:forcetypeassert // it is one string
func (c *collected) Warn(v ...any) { c.out.WriteString("warn " + v[0].(string) + "\n") } //nolint:forcetypeassert // as above

func TestLog_Hertz(t *testing.T) {
	l := hertz.Log(slog.LevelInfo).With("registry", "mesh") // made before the program sets its own
	before, own := hlog.DefaultLogger(), &collected{FullLogger: hlog.DefaultLogger()}
	hlog.SetLogger(own)
	t.Cleanup(func() { hlog.SetLogger(before) })
	l.Debug("not logged")
	l.Info("two", "services", 3)
	l.Warn("three")
	if got, want := strings.TrimSpace(own.out.String()), "info two registry=mesh services=3\nwarn three registry=mesh"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
