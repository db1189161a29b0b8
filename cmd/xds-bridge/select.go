package main

import (
	"errors"
	"fmt"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

var errNotIncluded = errors.New("select.include does not name it")

// selection returns what says why a bridge leaves a service out: by the host
// of a mesh, or by the native name elsewhere.
func selection(s config.Select) (func(*registry.Service) error, error) {
	include, err := patterns(s.Include)
	if err != nil {
		return nil, err
	}
	exclude, err := patterns(s.Exclude)
	if err != nil {
		return nil, err
	}
	if len(include)+len(exclude) == 0 {
		return nil, nil //nolint:nilnil // nothing is left out
	}
	return func(sv *registry.Service) error {
		for _, p := range exclude {
			if matches(p, sv.Name) {
				return fmt.Errorf("select.exclude names it by %q", p)
			}
		}
		if len(include) == 0 {
			return nil
		}
		for _, p := range include {
			if matches(p, sv.Name) {
				return nil
			}
		}
		return errNotIncluded
	}, nil
}

func matches(p naming.Pattern, name registry.Name) bool {
	address, err := naming.ParseHostAddress(string(name))
	if err != nil {
		return p.Match(string(name))
	}
	return p.MatchHost(address.Host) || p.MatchHost(string(name))
}
