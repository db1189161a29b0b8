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
}

// New returns a log that appends to a file; with an empty name it only logs.
func New(file string, log *slog.Logger) *Log { return &Log{file: file, log: log} }

// Check returns an error if the file cannot be written now.
func (l *Log) Check() error {
	if l.file == "" {
		return nil
	}
	return l.write(nil)
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
	f, err := os.OpenFile(l.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	_, err = f.Write(line)
	return errors.Join(err, f.Sync(), f.Close())
}
