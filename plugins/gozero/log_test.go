package gozero_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/zeromicro/go-zero/core/logx"

	"github.com/xds-bridge/xds-bridge/plugins/gozero"
)

func TestLog_Logx(t *testing.T) {
	var out bytes.Buffer
	before := logx.Reset()
	logx.SetWriter(logx.NewWriter(&out))
	t.Cleanup(func() { logx.SetWriter(before) })
	l := gozero.Log(slog.LevelDebug).With("registry", "mesh")
	l.Debug("one")
	l.Info("two", "services", 3)
	l.Warn("three")
	lines := json.NewDecoder(&out)
	for _, want := range []map[string]any{
		{"level": "debug", "content": "one", "registry": "mesh"},
		{"level": "info", "content": "two", "registry": "mesh", "services": 3.0},
		{"level": "error", "content": "three", "registry": "mesh"},
	} {
		var got map[string]any
		if err := lines.Decode(&got); err != nil {
			t.Fatal(err)
		}
		for key, value := range want {
			if got[key] != value {
				t.Errorf("%v: want %s %v", got, key, value)
			}
		}
	}
}
