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

// state is the last good answer to each query, in memory and in a file. An answer that is
// denied, unknown or out of date never replaces a good one. An answer without endpoints says
// that there was no provider; about a query without an answer nothing is known.
//
// The file belongs to one registry and is not used for another. It is a cache: without it, only
// the answers after a start without a registry are lost. It holds the maxAnswers that were
// confirmed last, and none older than age.
type state struct {
	// Immutable.
	path  string
	place string // Backend.Place
	age   time.Duration
	log   *slog.Logger
	wake  chan struct{}

	mu      sync.Mutex
	answers map[Query]answer
	err     error // why the file cannot be written
}

// answer is the stored answer to one query.

// answer is what the file holds of one query.
type answer struct {
	By        by                  `json:"by"`
	Text      string              `json:"text"`
	At        time.Time           `json:"at"`
	Services  []*registry.Service `json:"services"`
	Endpoints []savedEndpoint     `json:"endpoints"`
}

// savedEndpoint is an endpoint and the index of its service.
type savedEndpoint struct {
	Service  int               `json:"service"`
	Endpoint registry.Endpoint `json:"endpoint"`
}

// stateFile is the content of the file. Sum is the checksum of the bytes of Answers.
type stateFile struct {
	Version int             `json:"version"`
	Place   string          `json:"registry"`
	Sum     string          `json:"sha256"`
	Answers json.RawMessage `json:"answers"`
}

const stateVersion = 1

const (
	writeDelay      = time.Second      // gathers changes before the file is written
	confirmInterval = 10 * time.Minute // renews the time of answers that are still watched
	emptyAnswerAge  = time.Hour        // maximum age of an empty answer, which soon misses new providers
	maxAnswers      = 1000
)

func openState(o Options, place string) *state {
	s := &state{
		path: o.StateFile, place: place, age: o.StateAge, log: o.Log,
		wake: make(chan struct{}, 1), answers: make(map[Query]answer),
	}
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

// writable returns why there cannot be a file at a path.
func writable(path string) error {
	if at, err := os.Stat(path); err == nil && at.IsDir() {
		return fmt.Errorf("%s: is a directory", path)
	}
	_, err := os.Stat(filepath.Dir(path))
	return err
}

// failure returns why the file cannot be written; nil: it can, or there is none.
func (s *state) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return fmt.Errorf("%w: state file: %w", ErrStateFile, s.err)
}

// expired reports whether an answer was confirmed too long ago to be used.
func (s *state) expired(a answer) bool {
	age := s.age
	if len(a.Endpoints) == 0 {
		age = min(age, emptyAnswerAge)
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
		return fmt.Errorf("expected version %d, found %d", stateVersion, file.Version)
	}
	if file.Place != s.place { // the same names may lead to other processes there
		return fmt.Errorf("it belongs to another registry: %s, not %s", file.Place, s.place)
	}
	if sum := sha256.Sum256(file.Answers); hex.EncodeToString(sum[:]) != file.Sum {
		return errors.New("damaged: the checksum does not match")
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

// record records an answer that is complete and current. If only its time changed, that is
// written with the next change.
func (s *state) record(now Snapshot) {
	if s.path == "" || now.Err != nil || !now.Since.IsZero() {
		return
	}
	a := answer{By: now.Query.by, Text: now.Query.text, At: time.Now()}
	number := make(map[*registry.Service]int)
	for _, e := range now.all {
		n, ok := number[e.service]
		if !ok {
			n = len(a.Services)
			number[e.service] = n
			bare := *e.service
			bare.Endpoints = nil
			a.Services = append(a.Services, &bare)
		}
		a.Endpoints = append(a.Endpoints, savedEndpoint{n, e.reported})
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

// lookup returns the last known answer to a query.
func (s *state) lookup(q Query) (Snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.answers[q]
	return a.snapshot(q), ok && !s.expired(a)
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

// run writes the file after each change, every confirmInterval after confirm renewed the
// answers that are still current, and once more at the end.
func (s *state) run(ctx context.Context, confirm func()) error {
	if s.path == "" {
		return nil
	}
	timer := time.NewTimer(writeDelay)
	timer.Stop()
	defer timer.Stop()
	confirmTicker := time.NewTicker(confirmInterval)
	defer confirmTicker.Stop()
	pending, failing := false, false
	write := func() {
		err := s.save()
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		if err != nil && !failing {
			s.log.Warn("state file not written, retrying after the next change", "file", s.path, "err", err)
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
		case <-confirmTicker.C:
			confirm()
			write()
		}
	}
}

// save replaces the file: a crash leaves the old one or the new one.
func (s *state) save() error {
	body, err := json.Marshal(s.pruned())
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	sum := sha256.Sum256(body)
	file := stateFile{Version: stateVersion, Place: s.place, Sum: hex.EncodeToString(sum[:]), Answers: body}
	data, err := json.Marshal(file)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return statefile.Replace(s.path, data)
}

// pruned drops expired and excess answers, and returns the remaining ones, the last confirmed
// first.
func (s *state) pruned() []answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.answers, func(_ Query, a answer) bool { return s.expired(a) })
	all := slices.SortedFunc(maps.Values(s.answers), func(a, b answer) int {
		return cmp.Or(b.At.Compare(a.At), compareQueries(Query{a.By, a.Text}, Query{b.By, b.Text}))
	})
	for _, a := range all[min(len(all), maxAnswers):] {
		delete(s.answers, Query{a.By, a.Text})
	}
	return all[:min(len(all), maxAnswers)]
}
