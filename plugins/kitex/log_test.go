package kitex_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/cloudwego/kitex/pkg/klog"

	"github.com/xds-bridge/xds-bridge/plugins/kitex"
)

// collected is a logger of Kitex that a program might set.
type collected struct {
	klog.FullLogger
	out bytes.Buffer
}

func (c *collected) Info(v ...any) { c.out.WriteString("info " + v[0].(string) + "\n") } //nolint:forcetypeassert // it is one string
func (c *collected) Warn(v ...any) { c.out.WriteString("warn " + v[0].(string) + "\n") } //nolint:forcetypeassert // as above

func TestLog(t *testing.T) {
	l := kitex.Log(slog.LevelInfo).With("registry", "mesh") // made before the program sets its own
	before, own := klog.DefaultLogger(), &collected{FullLogger: klog.DefaultLogger()}
	klog.SetLogger(own)
	t.Cleanup(func() { klog.SetLogger(before) })
	l.Debug("not told")
	l.Info("two", "services", 3)
	l.Warn("three")
	if got, want := strings.TrimSpace(own.out.String()), "info two registry=mesh services=3\nwarn three registry=mesh"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
