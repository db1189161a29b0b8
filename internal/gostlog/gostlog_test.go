package gostlog_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	gost "github.com/dubbogo/gost/log/logger"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/gostlog"
)

// lines is a gost logger that collects its lines.
type lines struct {
	gost.Logger
	mu  sync.Mutex
	got []string
}

func (l *lines) add(level string, args []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = append(l.got, level+" "+fmt.Sprint(args...))
}

func (l *lines) Debug(args ...any) { l.add("debug", args) }
func (l *lines) Info(args ...any)  { l.add("info", args) }
func (l *lines) Warn(args ...any)  { l.add("warn", args) }
func (l *lines) Error(args ...any) { l.add("error", args) }

func TestHandler_WritesToTheGostLogger(t *testing.T) {
	out := &lines{}
	before := gost.GetLogger()
	gost.SetLogger(out)
	t.Cleanup(func() { gost.SetLogger(before) })
	log := slog.New(gostlog.New(func() gostlog.Logger { return gost.GetLogger() }, slog.LevelInfo))

	log.Debug("below the level")
	log.Info("source synced", "registry", "mesh", "services", 3)
	log.With("registry", "zk").WithGroup("call").Warn("target call failed", "op", "read", "err", errors.New("line\nbreak"))
	log.Error("login refused", "password", config.Secret("hunter2"))

	want := strings.Join([]string{
		`info source synced registry=mesh services=3`,
		`warn target call failed registry=zk call.op=read call.err="line\nbreak"`,
		`error login refused password=<redacted>`,
	}, "\n")
	if got := strings.Join(out.got, "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestHandler_IsSafeForConcurrentUse(t *testing.T) {
	out := &lines{}
	log := slog.New(gostlog.New(func() gostlog.Logger { return out }, slog.LevelDebug))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				log.With("a", 1).Info("m", "b", 2)
			}
		})
	}
	all.Wait()
	for _, l := range out.got {
		if l != "info m a=1 b=2" {
			t.Fatalf("line %q, want info m a=1 b=2", l)
		}
	}
}
