package app

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
)

// The key of a part is the text of all settings that it depends on. A part
// whose key is the same before and after a reload continues unchanged. What is
// taken out of a key is what the part does not depend on, or what can be
// changed while it runs: a setting that is new to the configuration restarts
// what it belongs to until somebody says otherwise here.

// sourceConfig returns all of a configuration that the source of a registry is
// made of. The source sees nothing else, and the text of it is its key.
func sourceConfig(cfg *config.Config, name string) *config.Config {
	r := cfg.Registries[name].Section().Parts().Source
	part := &config.Config{Owner: cfg.Owner, Registries: map[string]config.Registry{name: r}}
	for _, x := range cfg.Bridges {
		if x.From != name {
			continue
		}
		read := config.Bridge{From: name, Select: x.Select, Names: x.Names}
		read.Select.Exclude = nil
		if kindOf(r).abilities().mesh == nil { // elsewhere bridges choose from all that a registry holds
			read.Formats, read.Select = x.Read(), config.Select{Allow: x.Select.Allow}
		}
		if !slices.ContainsFunc(part.Bridges, func(o config.Bridge) bool { return text(o) == text(read) }) {
			part.Bridges = append(part.Bridges, read)
		}
	}
	return part
}

// targetConnectionKey returns the key of the connection to a target.
func targetConnectionKey(cfg *config.Config, at targetKey) string {
	r := cfg.Registries[at.registry]
	published := ""
	var read []config.Registry // that keep what is served
	if kindOf(r).abilities().mesh != nil {
		for _, x := range leadingTo(cfg, at) {
			read = append(read, cfg.Registries[x.From].Section().Parts().Source)
		}
		if m, ok := kindOf(r).(meshKind); ok && m.PublishesKeys() {
			published = keyPublisherKey(cfg, at.registry)
		}
	}
	return text(cfg.Owner, cfg.State, at.listen, r.Section().Parts().Connection, published, read)
}

// keyPublisherKey returns the key of what publishes the service keys of hosts
// that are imported into a mesh.
func keyPublisherKey(cfg *config.Config, mesh string) string {
	m := *cfg.Registries[mesh].Istiod
	m.Import, m.Mapping, m.ExportAll, m.Subsets, m.ID = config.Import{}, config.Mapping{}, false, false, ""
	// Where the mesh is read, the replicas of istiod are found by that.
	read := slices.ContainsFunc(cfg.Bridges, func(x config.Bridge) bool { return x.From == mesh })
	return text(m, read)
}

// loopKey returns the key of a target and its loop, beside its
// connection. Guards and timing are not in it: they are changed while it runs.
func loopKey(cfg *config.Config, at targetKey, former []formatUse) string {
	type way struct {
		Bridge config.Bridge
		From   config.Registry
	}
	var all []way
	for _, x := range leadingTo(cfg, at) {
		x.Guard = config.Guard{}
		all = append(all, way{x, cfg.Registries[x.From].Section().Parts().Identity})
	}
	var suffixes []string
	for _, r := range cfg.Registries {
		if m := kindOf(r).abilities().mesh; m != nil {
			suffixes = append(suffixes, m.Suffix)
		}
	}
	slices.Sort(suffixes)
	var left []string
	for _, u := range former {
		left = append(left, text(u.bridge.Name, u.format))
	}
	return text(cfg.Owner, all, left, cfg.Registries[at.registry].Section().Parts().Loop, slices.Compact(suffixes))
}

// text returns settings as one text, equal where they are.
func text(settings ...any) string {
	raw, err := json.Marshal(settings)
	if err != nil {
		panic(fmt.Sprintf("settings cannot be written down: %v", err)) // all are plain values
	}
	return string(raw)
}
