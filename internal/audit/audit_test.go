package audit_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xds-bridge/xds-bridge/internal/audit"
)

func TestLog_FileAndLogger(t *testing.T) {
	var logged bytes.Buffer
	file := filepath.Join(t.TempDir(), "audit.ndjson")
	l := audit.New(file, slog.New(slog.NewTextHandler(&logged, nil)))
	l.Record(t.Context(), audit.Entry{Who: "ann@host\n(127.0.0.1:1)", Action: "approve", Subject: "0123", Count: 2, Before: []string{"g a", "g b"}, After: "they go"})
	if err := os.Rename(file, file+".1"); err != nil { // rotated
		t.Fatal(err)
	}
	l.Record(t.Context(), audit.Entry{Who: "bob", Action: "deny", Subject: "0123", Before: make([]string, 5000)})
	for name, want := range map[string]audit.Entry{file + ".1": {Who: "ann@host\n(127.0.0.1:1)", Action: "approve"}, file: {Who: "bob", Action: "deny"}} {
		text, err := os.ReadFile(name)
		if err != nil || bytes.Count(text, []byte("\n")) != 1 {
			t.Fatalf("%s: %q, %v", name, text, err)
		}
		var got audit.Entry
		if err := json.Unmarshal(text, &got); err != nil || got.Who != want.Who || got.Action != want.Action || got.Time.IsZero() || len(got.Before) > 1000 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if n := strings.Count(logged.String(), "\n"); n != 2 || !strings.Contains(logged.String(), "ann@host") {
		t.Errorf("logged: %s", logged.String())
	}
}

func TestLog_UnwritableFile(t *testing.T) {
	var logged bytes.Buffer
	l := audit.New(t.TempDir(), slog.New(slog.NewTextHandler(&logged, nil)))
	if l.Check() == nil {
		t.Error("Check() of a directory: want an error")
	}
	l.Record(t.Context(), audit.Entry{Who: "ann", Action: "approve"})
	if l.Err() == nil {
		t.Error("Err() after an entry that was not written: want an error")
	}
	if got := logged.String(); !strings.Contains(got, "action=approve") || !strings.Contains(got, "could not write audit.file") {
		t.Errorf("logged: %s", got)
	}
}

func TestLog_Level(t *testing.T) {
	var logged bytes.Buffer
	l := audit.New("", slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError})))
	l.Record(t.Context(), audit.Entry{Who: "ann", Action: "purge"})
	if got := logged.String(); !strings.Contains(got, "action=purge") {
		t.Errorf("logged: %q", got)
	}
}

// TestLog_Err shows that the error of a missing line lasts until another line is written,
// and the error of a file that cannot be opened until it can be.
func TestLog_Err(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	l := audit.New(filepath.Join(dir, "audit.ndjson"), slog.New(slog.DiscardHandler))
	made := func(of string, want bool) {
		t.Helper()
		if got := l.Err() == nil; got != want {
			t.Errorf("%s: Err() = %v, want nil: %t", of, l.Err(), want)
		}
	}
	_ = l.Check()
	made("no directory", false)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	_ = l.Check()
	made("a directory", true)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	l.Record(t.Context(), audit.Entry{Who: "ann", Action: "deny"})
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	_ = l.Check()
	made("a line is missing", false)
	l.Record(t.Context(), audit.Entry{Who: "ann", Action: "deny"})
	made("a line is written", true)
}
