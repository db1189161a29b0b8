package config

import "slices"

// A TargetKey identifies what one loop writes to: a registry, or one address at which a
// mesh is served. Bridges to the same target wait for each other there.
type TargetKey struct{ Registry, Listen string }

// String returns the name of the target, as in mesh (:15031).
func (k TargetKey) String() string {
	if k.Listen == "" {
		return k.Registry
	}
	return k.Registry + " (" + k.Listen + ")"
}

// Target returns the target that a bridge leads to.
func (b Bridge) Target() TargetKey { return TargetKey{b.To, b.Listen} }

// BridgesTo returns the bridges to a target, in the order of the file.
func (c *Config) BridgesTo(at TargetKey) []Bridge {
	return slices.DeleteFunc(slices.Clone(c.Bridges), func(b Bridge) bool { return b.Target() != at })
}

// Mesh returns how services of other registries appear in a registry that is a mesh; nil:
// it is not a mesh.
func (c *Config) Mesh(registry string) *Hosts { return c.Registries[registry].Settings().Mesh }
