package demo

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/xds-bridge/xds-bridge/bridge"
)

// State is what --once prints as JSON. Its names are stable.
type State struct {
	InSync   bool                   `json:"in_sync"`
	Services []bridge.ServiceStatus `json:"services"` // of the mesh, each with its reason
	Groups   []GroupState           `json:"folders"`  // of the registry, as far as the bridge wrote in them
}

// GroupState is one parent of the registry.
type GroupState struct {
	Path      string   `json:"path"`
	Providers []string `json:"providers"` // URLs or, in Nacos, instances, as consumers read them
}

// show prints the state of both sides.
func (s *environment) show(ctx context.Context, status bridge.Status) error {
	state := State{InSync: status.InSync(), Services: status.Services}
	groups, err := s.journal.Groups(ctx)
	if err != nil {
		return fmt.Errorf("demo: list the registry: %w", err)
	}
	for _, g := range groups {
		held, err := s.journal.Read(ctx, g)
		if err != nil {
			return fmt.Errorf("demo: read %s: %w", g, err)
		}
		path, err := s.pathOf(g)
		if err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		f := GroupState{Path: path}
		for _, h := range held {
			if h.Owner == status.Owner {
				f.Providers = append(f.Providers, h.Value)
			}
		}
		if len(f.Providers) > 0 {
			state.Groups = append(state.Groups, f)
		}
	}
	if !s.options.JSON {
		return s.list(state)
	}
	enc := json.NewEncoder(s.options.Out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(state); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

func (s *environment) list(state State) error {
	for _, f := range state.Groups {
		if _, err := fmt.Fprintln(s.options.Out, f.Path); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		for _, p := range f.Providers {
			if _, err := fmt.Fprintln(s.options.Out, "  "+p); err != nil {
				return fmt.Errorf("demo: %w", err)
			}
		}
	}
	for _, sv := range state.Services {
		if _, err := fmt.Fprintf(s.options.Out, "%s: %s %s\n", sv.Service, sv.Reason, sv.Detail); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	return nil
}
