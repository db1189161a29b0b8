package config

import (
	"maps"
	"slices"
	"strconv"
)

// Validate returns everything that is wrong with the configuration beyond
// its form, each fault with its path; it touches neither files nor network.
func (c *Config) Validate() Faults {
	v := &validator{places: c.places}
	v.name("owner", c.Owner, "marks what this bridge may change and delete, and has to be unique per deployment")
	if len(c.Registries) == 0 {
		v.fault("registries", "missing; name at least the two that a bridge leads from and to")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Registries)) {
		v.registry("registries."+name, name, c.Registries[name])
	}
	if len(c.Bridges) == 0 {
		v.fault("bridges", "missing; a bridge needs name, from, to and formats")
	}
	seen := make(map[string]int)
	for i, b := range c.Bridges {
		path := "bridges[" + strconv.Itoa(i) + "]"
		if first, ok := seen[b.Name]; ok && b.Name != "" {
			v.fault(path+".name", "duplicate bridge %q, first at bridges[%d]", b.Name, first)
		}
		seen[b.Name] = i
		v.bridge(path, b, c.Registries)
	}
	v.replicas(c)
	v.meetings(c.Bridges, c.Registries)
	v.listener("telemetry.address", c.Telemetry.Address)
	v.admin("admin", c.Admin)
	return v.faults
}

// validator gathers faults.
type validator struct {
	places places
	faults Faults
}

func (v *validator) fault(path, format string, args ...any) {
	v.faults = append(v.faults, v.places.fault(path, format, args...))
}

// name checks a name that becomes a part of marks, paths and metrics.
func (v *validator) name(path, name, purpose string) {
	switch {
	case name == "":
		v.fault(path, "missing; it %s", purpose)
	case !validName(name):
		v.fault(path, "%q is no name; use 1 to 63 of a-z, A-Z, 0-9, '.', '-' and '_', a letter or digit first", name)
	}
}

func validName(name string) bool {
	for i, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		case i > 0 && (r == '.' || r == '-' || r == '_'):
		default:
			return false
		}
	}
	return len(name) > 0 && len(name) <= 63
}
