package kitex_test

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/cloudwego/kitex/pkg/klog"

	"github.com/xds-bridge/xds-bridge/plugins/kitex"
)

// collected is a logger of Kitex that a program might set.
type collected struct {
	klog.FullLogger
	mu  sync.Mutex
	out bytes.Buffer
}

func (c *collected) Info(v ...any) { c.line("info ", v) }
func (c *collected) Warn(v ...any) { c.line("warn ", v) }

func (c *collected) line(level string, v []any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.WriteString(level + v[0].(string) + "\n") //nolint:forcetypeassert // it is one string
}

var own = &collected{FullLogger: klog.DefaultLogger()}

// TestMain sets the logger before anything else logs. Kitex does not support a later call, and the
// balancers of Kitex clients run for a while after the clients are closed.
func TestMain(m *testing.M) {
	l := kitex.Log(slog.LevelInfo).With("registry", "mesh") // made before the program sets its own
	klog.SetLogger(own)
	l.Debug("not logged")
	l.Info("two", "services", 3)
	l.Warn("three")
	os.Exit(m.Run())
}

func TestLog(t *testing.T) {
	own.mu.Lock()
	defer own.mu.Unlock()
	if got, want := own.out.String(), "info two registry=mesh services=3\nwarn three registry=mesh\n"; !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
