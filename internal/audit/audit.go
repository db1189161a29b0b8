// Package audit records the decisions of operators. Each is a line of JSON that is
// appended to a file, and a log line. The package makes no decisions.
package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/internal/redact"
)

// Entry is one decision of an operator.
type Entry struct {
	Time    time.Time `json:"time"`
	Who     string    `json:"who"`
	Action  string    `json:"action"` // approve, deny, adopt, release, purge, reload
	Owner   string    `json:"owner,omitempty"`
	Target  string    `json:"target,omitempty"`
	Bridge  string    `json:"bridge,omitempty"`
	Subject string    `json:"subject,omitempty"` // the id of a hold, or an owner
	Count   int       `json:"count"`             // the number of affected registry entries
	Before  []string  `json:"before,omitempty"`  // the affected registry entries, at most maxBefore
	After   string    `json:"after"`             // the state of these entries afterwards
	Error   string    `json:"error,omitempty"`   // why the decision was not carried out completely
}

// maxBefore is the maximum number of registry entries in an Entry.
const maxBefore = 1000

// Log writes entries. It is safe for concurrent use.
type Log struct {
	file string
	log  *slog.Logger

	mu  sync.Mutex
	err error // of the last write; guarded by mu
}

// New returns a log that appends to a file. With an empty name it only logs.
func New(file string, log *slog.Logger) *Log { return &Log{file: file, log: log} }

// Check returns an error if the file cannot be opened for writing, or if the last entry
// could not be written. A full disk is only detected by writing an entry.
func (l *Log) Check() error {
	if l.file == "" {
		return nil
	}
	if err := l.write(nil); err != nil {
		return err
	}
	return l.Err()
}

// Err returns the error of the last write, which may be nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Record records an entry. A failed write to the file does not fail the decision: the
// entry is still logged, and so is the failure.
func (l *Log) Record(ctx context.Context, e Entry) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Before = slices.Clone(e.Before[:min(len(e.Before), maxBefore)])
	for i, entry := range e.Before {
		e.Before[i] = redact.Text(entry)
	}
	e.Error = redact.Text(e.Error)
	line := slog.NewRecord(e.Time, slog.LevelInfo, "audit", 0)
	line.Add("who", e.Who, "action", e.Action, "registry", e.Target, "bridge", e.Bridge,
		"subject", e.Subject, "entries", e.Count, "after", e.After, "err", e.Error)
	// Logged at every level, because it may be the only record.
	if err := l.log.Handler().Handle(ctx, line); err != nil {
		l.log.Error("could not log audit entry", "err", err)
	}
	if l.file == "" {
		return
	}
	if err := l.append(e); err != nil {
		l.log.Error("could not write audit.file; the log line before this one is the only record", "err", err)
	}
}

func (l *Log) append(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return l.write(append(line, '\n'))
}

// write appends a line, which may be empty. It opens the file each time, so that the file
// can be rotated.
func (l *Log) write(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.appendLine(line)
	if err != nil || len(line) > 0 || !errors.Is(l.err, errLine) {
		l.err = err
	}
	return err
}

// errLine marks the error of a missing line. Only a successful write of another line ends
// that error.
var errLine = errors.New("a decision is missing in the file")

func (l *Log) appendLine(line []byte) error {
	f, err := os.OpenFile(l.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(line)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil && len(line) > 0 {
		return fmt.Errorf("%w: %w", errLine, err)
	}
	return err
}
