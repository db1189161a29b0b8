package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

var errNotIncluded = errors.New("no pattern of select.include fits its host, or its interface or native name")

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
	return func(sv *registry.Service) error { return leftOut(sv, include, exclude, imported) }, nil
}

// leftOut says why a service is not taken, nil where it is.
func leftOut(sv *registry.Service, include, exclude, imported []naming.Pattern) error {
	for _, p := range imported {
		if matches(p, sv) && !namedBy(include, sv) {
			return fmt.Errorf("it was imported: its host is under %q; name it in select.include to export it all the same", p)
		}
	}
	for _, p := range exclude {
		if matches(p, sv) {
			return fmt.Errorf("select.exclude names it by %q", p)
		}
	}
	if len(include) == 0 || namedBy(include, sv) || matchesAny(include, sv) {
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
func namedBy(include []naming.Pattern, sv *registry.Service) bool {
	for _, p := range include {
		if p.String() != "*" && matches(p, sv) {
			return true
		}
	}
	return false
}

func matchesAny(all []naming.Pattern, sv *registry.Service) bool {
	return slices.ContainsFunc(all, func(p naming.Pattern) bool { return matches(p, sv) })
}

// matches reports whether a pattern fits the host of a service of a mesh; of
// any other its native name, with what says where it is stored or without, or
// an interface that it provides.
func matches(p naming.Pattern, sv *registry.Service) bool {
	name := string(sv.Name)
	if fits, host := matchesHost(p, name); host {
		return fits
	}
	return p.Match(name) || p.Match(name[strings.LastIndexByte(name, '/')+1:]) ||
		slices.ContainsFunc(sv.Interfaces, func(i registry.Interface) bool { return p.Match(i.Name) })
}

// matchesHost reports whether a name is the address of a host of a mesh, and whether
// a pattern fits the host or all of it.
func matchesHost(p naming.Pattern, name string) (fits, host bool) {
	address, err := naming.ParseHostAddress(name)
	return err == nil && (p.MatchHost(address.Host) || p.MatchHost(name)), err == nil
}
