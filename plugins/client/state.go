package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/statefile"
)

// state is the last good answer to each query, in memory and in a file. What is
// denied, unknown or out of date is never written over it. An answer without
// endpoints says that there was nobody; of a query that has no answer nothing is
// known.
//
// The file is that of one registry, and answers for no other. It is a cache: one that is missing, damaged or cannot be written costs
// the answers after a start without a registry, and nothing else. It holds no
// more than maxAnswers, those that were confirmed last, and none that is older
// than age.
type state struct {
	path string
	of   string // the registry, as Backend.Place has it
	age  time.Duration
	log  *slog.Logger
	wake chan struct{}

	mu      sync.Mutex
	answers map[Query]answer
	err     error // why the file cannot be written
}

// answer is what the file holds of one query.
type answer struct {
	By        by                  `json:"by"`
	Text      string              `json:"text"`
	At        time.Time           `json:"at"`
	Services  []*registry.Service `json:"services"`
	Endpoints []place             `json:"endpoints"`
}

// place is an endpoint and the number of its service.
type place struct {
	Service  int               `json:"service"`
	Endpoint registry.Endpoint `json:"endpoint"`
}

// stateFile is the whole file: the sum is that of the answers' bytes.
type stateFile struct {
	Version int             `json:"version"`
	Of      string          `json:"registry"`
	Sum     string          `json:"sha256"`
	Answers json.RawMessage `json:"answers"`
}

const stateVersion = 1

const (
	writeDelay = time.Second      // how long changes are gathered before the file is written
	confirmed  = 10 * time.Minute // how often the time of what is still watched is renewed
	emptyAge   = time.Hour        // of an answer that there is nobody: one that comes does not show who is away
	maxAnswers = 1000
)

func openState(o Options, of string) *state {
	s := &state{path: o.StateFile, of: of, age: o.StateAge, log: o.Log, wake: make(chan struct{}, 1), answers: make(map[Query]answer)}
	if s.path == "" {
		return s
	}
	if err := s.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("state file not used, starting without it", "file", s.path, "err", err)
	}
	if err := writable(s.path); err != nil {
		s.err = err
		s.log.Warn("state file cannot be written", "file", s.path, "err", err)
	}
	return s
}

// writable returns why there can be no file at a path.
func writable(path string) error {
	if at, err := os.Stat(path); err == nil && at.IsDir() {
		return fmt.Errorf("%s: is a directory", path)
	}
	_, err := os.Stat(filepath.Dir(path))
	return err
}

// failure returns why the file cannot be written; nil where it can, or there is none.
func (s *state) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return fmt.Errorf("%w: state file: %w", ErrStateFile, s.err)
}

// old reports whether an answer was confirmed too long ago to be used.
func (s *state) old(a answer) bool {
	age := s.age
	if len(a.Endpoints) == 0 {
		age = min(age, emptyAge)
	}
	return time.Since(a.At) > age
}

func (s *state) load() error {
	data, err := os.ReadFile(s.path)
	if err != nil {
		return err
	}
	var file stateFile
	if err := json.Unmarshal(data, &file); err != nil {
		return fmt.Errorf("not a state file: %w", err)
	}
	if file.Version != stateVersion {
		return fmt.Errorf("of version %d, want %d", file.Version, stateVersion)
	}
	if file.Of != s.of { // its names may lead to other processes there
		return fmt.Errorf("of another registry: %s; this one is %s", file.Of, s.of)
	}
	if sum := sha256.Sum256(file.Answers); hex.EncodeToString(sum[:]) != file.Sum {
		return errors.New("damaged: its checksum does not fit")
	}
	var all []answer
	if err := json.Unmarshal(file.Answers, &all); err != nil {
		return fmt.Errorf("answers: %w", err)
	}
	for _, a := range all {
		a.At = earlier(a.At, time.Now()) // a clock may have been set back
		s.answers[Query{a.By, a.Text}] = a
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// keep records a full and current answer. That it is still the same is written when
// the file is written next.
func (s *state) keep(now Snapshot) {
	if s.path == "" || now.Err != nil || !now.Since.IsZero() {
		return
	}
	a := answer{By: now.Query.by, Text: now.Query.text, At: time.Now()}
	number := make(map[*registry.Service]int)
	for _, e := range now.all {
		n, ok := number[e.of]
		if !ok {
			n = len(a.Services)
			number[e.of] = n
			bare := *e.of
			bare.Endpoints = nil
			a.Services = append(a.Services, &bare)
		}
		a.Endpoints = append(a.Endpoints, place{n, e.at})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, ok := s.answers[now.Query]
	now.Err, now.Since = errSaved, a.At
	s.answers[now.Query] = a
	if ok && before.snapshot(now.Query).same(now) {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

var errSaved = errors.New("from the state file")

// get returns the last known answer to a query.
func (s *state) get(q Query) (Snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.answers[q]
	return a.snapshot(q), ok && !s.old(a)
}

func (a answer) snapshot(q Query) Snapshot {
	out := Snapshot{Query: q, Since: a.At, Err: errSaved}
	var all []Endpoint
	for _, p := range a.Endpoints {
		if p.Service >= 0 && p.Service < len(a.Services) && a.Services[p.Service] != nil {
			e := endpointOf(a.Services[p.Service], p.Endpoint)
			e.unconfirmed = true
			all = append(all, e)
		}
	}
	out.all, out.Endpoints = all, callable(all)
	return out
}

// run writes the file after changes, from time to time as confirm renews what is
// still current, and once more at the end.
func (s *state) run(ctx context.Context, confirm func()) error {
	if s.path == "" {
		return nil
	}
	timer := time.NewTimer(writeDelay)
	timer.Stop()
	defer timer.Stop()
	again := time.NewTicker(confirmed)
	defer again.Stop()
	pending, failing := false, false
	write := func() {
		err := s.save()
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		if err != nil && !failing {
			s.log.Warn("state file not written, continuing without it", "file", s.path, "err", err)
		}
		pending, failing = false, err != nil
	}
	for {
		select {
		case <-ctx.Done():
			if pending {
				write()
			}
			return nil
		case <-s.wake:
			if !pending {
				timer.Reset(writeDelay)
			}
			pending = true
		case <-timer.C:
			write()
		case <-again.C:
			confirm()
			write()
		}
	}
}

// save replaces the file: a crash leaves the old one or the new one.
func (s *state) save() error {
	body, err := json.Marshal(s.latest())
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	sum := sha256.Sum256(body)
	data, err := json.Marshal(stateFile{Version: stateVersion, Of: s.of, Sum: hex.EncodeToString(sum[:]), Answers: body})
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return statefile.Replace(s.path, data)
}

// latest forgets what is old or too much, and returns the rest, the one that was
// confirmed last first.
func (s *state) latest() []answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.answers, func(_ Query, a answer) bool { return s.old(a) })
	all := slices.SortedFunc(maps.Values(s.answers), func(a, b answer) int {
		return cmp.Or(b.At.Compare(a.At), compareQueries(Query{a.By, a.Text}, Query{b.By, b.Text}))
	})
	for _, a := range all[min(len(all), maxAnswers):] {
		delete(s.answers, Query{a.By, a.Text})
	}
	return all[:min(len(all), maxAnswers)]
}
