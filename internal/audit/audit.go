// Package audit keeps who changed what by hand: a line of JSON for each decision of a
// person, appended to a file and logged. It decides nothing.
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

// Entry is one thing that a person had done.
type Entry struct {
	Time    time.Time `json:"time"`
	Who     string    `json:"who"`
	Action  string    `json:"action"` // approve, deny, adopt, release, purge, reload
	Owner   string    `json:"owner,omitempty"`
	Target  string    `json:"target,omitempty"`
	Bridge  string    `json:"bridge,omitempty"`
	Subject string    `json:"subject,omitempty"` // the id of a hold, or an owner
	Count   int       `json:"count"`             // of the entries concerned
	Before  []string  `json:"before,omitempty"`  // those entries, the first of them if there are many
	After   string    `json:"after"`             // what they are afterwards
	Error   string    `json:"error,omitempty"`   // why it was not done, or not all of it
}

// maxBefore is how many entries are named.
const maxBefore = 1000

// Log writes entries. It is safe for concurrent use.
type Log struct {
	file string
	log  *slog.Logger
	mu   sync.Mutex
	err  error // of the last attempt to write
}

// New returns a log that appends to a file; with an empty name it only logs.
func New(file string, log *slog.Logger) *Log { return &Log{file: file, log: log} }

// Check returns an error if the file cannot be written now. A disk that is full is
// noticed by the next entry alone, and counts until one is written.
func (l *Log) Check() error {
	if l.file == "" {
		return nil
	}
	if err := l.write(nil); err != nil {
		return err
	}
	return l.Err()
}

// Err returns why the last attempt to write failed; nil: it did not.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Record keeps an entry. A file that cannot be written costs no decision: the
// entry is logged all the same, and that it is missing from the file as well.
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
	// Whatever the level is: it may be the only record there is.
	if err := l.log.Handler().Handle(ctx, line); err != nil {
		l.log.Error("audit was not logged", "err", err)
	}
	if l.file == "" {
		return
	}
	if err := l.append(e); err != nil {
		l.log.Error("audit.file was not written; the line above is all there is", "err", err)
	}
}

func (l *Log) append(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return l.write(append(line, '\n'))
}

// write opens the file for each line, so that it can be rotated.
func (l *Log) write(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.appendLine(line)
	if err != nil || len(line) > 0 || !errors.Is(l.err, errLine) {
		l.err = err
	}
	return err
}

// errLine marks that a line is missing, which only the next line that is written ends.
var errLine = errors.New("a decision is not in it")

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
