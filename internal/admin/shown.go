package admin

import (
	"maps"
	"slices"
	"time"
)

// Show replaces what the server tells of, after the configuration was
// reloaded. What was ready once stays so under its name.
func (s *Server) Show(owner string, inputs []Input, targets []Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opts.Owner, s.opts.Inputs, s.opts.Targets = owner, slices.Clone(inputs), slices.Clone(targets)
	ticked := maps.Clone(s.ticked)
	clear(s.ticked)
	for _, t := range targets {
		if at, known := ticked[t.Name]; known {
			s.ticked[t.Name] = at
		} else {
			s.ticked[t.Name] = time.Now()
		}
	}
}

func (s *Server) owner() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opts.Owner
}

func (s *Server) inputs() []Input {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opts.Inputs
}

func (s *Server) targets() []Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opts.Targets
}
