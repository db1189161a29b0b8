package metadata

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
)

// A Selection says which services are taken. The zero Selection takes all.
type Selection struct {
	Include  []naming.Pattern // none: all
	Exclude  []naming.Pattern
	Imported []naming.Pattern // hosts that came out of other registries: only what Include names of them
}

var errNotIncluded = errors.New("no pattern of select.include fits its host, or its interface or native name")

// Refuse says why a service is not taken, nil where it is.
func (s Selection) Refuse(sv *registry.Service) error {
	for _, p := range s.Imported {
		if Matches(p, sv) && !s.names(sv) {
			return fmt.Errorf("it was imported: its host is under %q; name it in select.include to export it all the same", p)
		}
	}
	for _, p := range s.Exclude {
		if Matches(p, sv) {
			return fmt.Errorf("select.exclude names it by %q", p)
		}
	}
	if len(s.Include) == 0 || slices.ContainsFunc(s.Include, func(p naming.Pattern) bool { return Matches(p, sv) }) {
		return nil
	}
	return errNotIncluded
}

// names reports whether a pattern that is more than a star names a service.
func (s Selection) names(sv *registry.Service) bool {
	return slices.ContainsFunc(s.Include, func(p naming.Pattern) bool { return p.String() != "*" && Matches(p, sv) })
}

// Matches reports whether a pattern fits the host of a service of a mesh; of
// any other its native name, with what says where it is stored or without, or
// an interface that it provides.
func Matches(p naming.Pattern, sv *registry.Service) bool {
	name := string(sv.Name)
	if fits, host := MatchesHost(p, name); host {
		return fits
	}
	return p.Match(name) || p.Match(name[strings.LastIndexByte(name, '/')+1:]) ||
		slices.ContainsFunc(sv.Interfaces, func(i registry.Interface) bool { return p.Match(i.Name) })
}

// MatchesHost reports whether a name is the address of a host of a mesh, and
// whether a pattern fits the host or all of it.
func MatchesHost(p naming.Pattern, name string) (fits, host bool) {
	address, err := naming.ParseHostAddress(name)
	return err == nil && (p.MatchHost(address.Host) || p.MatchHost(name)), err == nil
}
