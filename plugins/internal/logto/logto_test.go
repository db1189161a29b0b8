package logto_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/xds-bridge/xds-bridge/plugins/internal/logto"
)

func TestHandler_Records(t *testing.T) {
	var got []string
	log := logto.New(slog.LevelInfo, func(level slog.Level, message string, pairs []any) error {
		got = append(got, fmt.Sprint(level, " ", message, " ", pairs))
		return nil
	})
	log.Debug("not logged")
	base := log.With("registry", "mesh")
	base.Info("synced", "services", 3)
	base.WithGroup("call").Warn("refused", "err", errors.New("no"), slog.Group("at", "host", "a", "port", 1), slog.Group("", "inline", true))
	base.WithGroup("").Error("after", slog.Attr{})
	log.Info("none of it stays")
	want := []string{
		"INFO synced [registry mesh services 3]",
		"WARN refused [registry mesh call.err no call.at.host a call.at.port 1 call.inline true]",
		"ERROR after [registry mesh]",
		"INFO none of it stays []",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
