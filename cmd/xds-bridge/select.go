package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

var errNotIncluded = errors.New("select.include does not name it")

// selection returns what says why a bridge leaves a service out: by the host
// of a mesh, or by the native name elsewhere.
func (b *builder) selection(x config.Bridge) (func(*registry.Service) error, error) {
	include, err := patterns(x.Select.Include)
	if err != nil {
		return nil, err
	}
	exclude, err := patterns(x.Select.Exclude)
	if err != nil {
		return nil, err
	}
	imported, err := b.imported(x)
	if err != nil {
		return nil, err
	}
	if len(include)+len(exclude)+len(imported) == 0 {
		return nil, nil //nolint:nilnil // nothing is left out
	}
	return func(sv *registry.Service) error { return leftOut(sv.Name, include, exclude, imported) }, nil
}

// leftOut says why a service of that name is not taken, nil where it is.
func leftOut(name registry.Name, include, exclude, imported []naming.Pattern) error {
	for _, p := range imported {
		if matches(p, name) && !namedBy(include, name) {
			return fmt.Errorf("it was imported: its host is under %q; name it in select.include to export it all the same", p)
		}
	}
	for _, p := range exclude {
		if matches(p, name) {
			return fmt.Errorf("select.exclude names it by %q", p)
		}
	}
	if len(include) == 0 || namedBy(include, name) || matchesAny(include, name) {
		return nil
	}
	return errNotIncluded
}

// imported returns the hosts of a mesh that came out of other registries:
// those under the suffix of any mesh of the file.
func (b *builder) imported(x config.Bridge) ([]naming.Pattern, error) {
	if b.cfg.Registries[x.From].Istiod == nil {
		return nil, nil
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(b.cfg.Registries)) {
		if m := b.cfg.Registries[name].Istiod; m != nil && !slices.Contains(texts, "*."+m.Import.Suffix) {
			texts = append(texts, "*."+m.Import.Suffix)
		}
	}
	return patterns(texts)
}

// namedBy reports whether a pattern that is more than a star names a service.
func namedBy(include []naming.Pattern, name registry.Name) bool {
	for _, p := range include {
		if p.String() != "*" && matches(p, name) {
			return true
		}
	}
	return false
}

func matchesAny(all []naming.Pattern, name registry.Name) bool {
	return slices.ContainsFunc(all, func(p naming.Pattern) bool { return matches(p, name) })
}

func matches(p naming.Pattern, name registry.Name) bool {
	address, err := naming.ParseHostAddress(string(name))
	if err != nil {
		return p.Match(string(name))
	}
	return p.MatchHost(address.Host) || p.MatchHost(string(name))
}
