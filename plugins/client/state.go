package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/statefile"
)

// state is the last known answer to each query, in memory and in a file. The
// file is a cache: one that is missing, damaged or cannot be written costs the
// answers after a start without a registry, and nothing else.
type state struct {
	path string
	log  *slog.Logger
	wake chan struct{}

	mu      sync.Mutex
	answers map[Query]answer
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
	Sum     string          `json:"sha256"`
	Answers json.RawMessage `json:"answers"`
}

const stateVersion = 1

// settle is how long changes are gathered before the file is written.
const settle = time.Second

func openState(path string, log *slog.Logger) *state {
	s := &state{path: path, log: log, wake: make(chan struct{}, 1), answers: make(map[Query]answer)}
	if path == "" {
		return s
	}
	if err := s.load(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("state file not used, starting without it", "file", path, "err", err)
	}
	return s
}

func (s *state) load() error {
	data, err := os.ReadFile(s.path)
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	var file stateFile
	if err := json.Unmarshal(data, &file); err != nil {
		return fmt.Errorf("not a state file: %w", err)
	}
	if file.Version != stateVersion {
		return fmt.Errorf("of version %d, want %d", file.Version, stateVersion)
	}
	if sum := sha256.Sum256(file.Answers); hex.EncodeToString(sum[:]) != file.Sum {
		return errors.New("damaged: its checksum does not fit")
	}
	var all []answer
	if err := json.Unmarshal(file.Answers, &all); err != nil {
		return fmt.Errorf("answers: %w", err)
	}
	for _, a := range all {
		s.answers[Query{a.By, a.Text}] = a
	}
	return nil
}

// keep notes a full and current answer.
func (s *state) keep(now Snapshot) {
	if s.path == "" || now.Err != nil {
		return
	}
	a := answer{By: now.Query.by, Text: now.Query.text, At: time.Now()}
	number := make(map[*registry.Service]int)
	for _, e := range now.Endpoints {
		n, ok := number[e.Service]
		if !ok {
			n = len(a.Services)
			number[e.Service] = n
			bare := *e.Service
			bare.Endpoints = nil
			a.Services = append(a.Services, &bare)
		}
		a.Endpoints = append(a.Endpoints, place{n, e.Endpoint})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.answers[now.Query]; ok && before.snapshot(now.Query).same(withErr(now, errSaved)) {
		return
	}
	s.answers[now.Query] = a
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

var errSaved = errors.New("from the state file")

func withErr(s Snapshot, err error) Snapshot {
	s.Err, s.Routes = err, nil
	return s
}

// get returns the last known answer to a query.
func (s *state) get(q Query) (Snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.answers[q]
	return a.snapshot(q), ok
}

func (a answer) snapshot(q Query) Snapshot {
	out := Snapshot{Query: q, Since: a.At, Err: errSaved}
	for _, p := range a.Endpoints {
		if p.Service >= 0 && p.Service < len(a.Services) && a.Services[p.Service] != nil {
			out.Endpoints = append(out.Endpoints, Endpoint{Endpoint: p.Endpoint, Service: a.Services[p.Service]})
		}
	}
	return out
}

// run writes the file after changes, and once more at the end.
func (s *state) run(ctx context.Context) error {
	if s.path == "" {
		return nil
	}
	timer := time.NewTimer(settle)
	timer.Stop()
	defer timer.Stop()
	pending, failing := false, false
	write := func() {
		err := s.save()
		if err != nil && !failing {
			s.log.Warn("state file not written, going on without", "file", s.path, "err", err)
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
				timer.Reset(settle)
			}
			pending = true
		case <-timer.C:
			write()
		}
	}
}

// save replaces the file: a crash leaves the old one or the new one.
func (s *state) save() error {
	s.mu.Lock()
	all := make([]answer, 0, len(s.answers))
	for _, a := range s.answers {
		all = append(all, a)
	}
	s.mu.Unlock()
	body, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	sum := sha256.Sum256(body)
	data, err := json.Marshal(stateFile{Version: stateVersion, Sum: hex.EncodeToString(sum[:]), Answers: body})
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return statefile.Replace(s.path, data) //nolint:wrapcheck // it names the file
}
