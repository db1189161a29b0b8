package app

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
)

// The key of a part is the text of all settings that it depends on. A part
// whose key is the same before and after a reload goes on as it is. What is
// taken out of a key is what the part does not depend on, or what can be
// changed while it runs: a setting that is new to the configuration restarts
// what it belongs to until somebody says otherwise here.

// sourceConfig returns all of a configuration that the source of a registry is
// made of. The source sees nothing else, and the text of it is its key.
func sourceConfig(cfg *config.Config, name string) *config.Config {
	r := connectionSettings(cfg.Registries[name])
	if r.Istiod != nil {
		r.Istiod.Import = config.Import{}
	}
	part := &config.Config{Owner: cfg.Owner, Registries: map[string]config.Registry{name: r}}
	for _, x := range cfg.Bridges {
		if x.From != name {
			continue
		}
		read := config.Bridge{From: name, Select: x.Select, Names: x.Names}
		read.Select.Exclude = nil
		if r.Istiod == nil { // elsewhere bridges choose from all that a registry holds
			read.Formats, read.Select = x.Read(), config.Select{Allow: x.Select.Allow}
		}
		if !slices.ContainsFunc(part.Bridges, func(o config.Bridge) bool { return text(o) == text(read) }) {
			part.Bridges = append(part.Bridges, read)
		}
	}
	return part
}

// targetConnectionKey returns the key of the connection to an end.
func targetConnectionKey(cfg *config.Config, at sinkKey) string {
	r := connectionSettings(cfg.Registries[at.registry])
	if z := r.ZooKeeper; z != nil {
		z.ID = ""
	}
	if n := r.Nacos; n != nil {
		n.ID, n.ListInterval = "", 0
	}
	announced := ""
	var read []config.Registry // that keep what is served
	if m := r.Istiod; m != nil {
		for _, x := range leadingTo(cfg, at) {
			read = append(read, connectionSettings(cfg.Registries[x.From]))
		}
		if m.Import.Keys != "off" {
			announced = keyPublisherKey(cfg, at.registry)
		}
		r.Istiod = &config.Istiod{Import: config.Import{VIPs: m.Import.VIPs, Keys: m.Import.Keys, TLS: m.Import.TLS, Clients: m.Import.Clients}}
	}
	return text(cfg.Owner, cfg.State, at.listen, r, announced, read)
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

// loopKey returns the key of the target and the loop at an end, beside its
// connection. Guards and timing are not in it: they are changed while it runs.
func loopKey(cfg *config.Config, at sinkKey, former []use) string {
	type way struct {
		Bridge config.Bridge
		From   config.Registry
	}
	var all []way
	for _, x := range leadingTo(cfg, at) {
		x.Guard = config.Guard{}
		all = append(all, way{x, identity(cfg.Registries[x.From])})
	}
	var suffixes []string
	for _, r := range cfg.Registries {
		if r.Istiod != nil {
			suffixes = append(suffixes, r.Istiod.Import.Suffix)
		}
	}
	slices.Sort(suffixes)
	var left []string
	for _, u := range former {
		left = append(left, text(u.bridge.Name, u.format))
	}
	return text(cfg.Owner, all, left, connectionSettings(cfg.Registries[at.registry]), slices.Compact(suffixes))
}

// connectionSettings returns a copy of a registry without what only its loop needs.
func connectionSettings(r config.Registry) config.Registry {
	r.Timing = config.Timing{}
	switch {
	case r.Istiod != nil:
		m := *r.Istiod
		m.Limits = config.Limits{MaxReceive: m.Limits.MaxReceive} // the others are the table's
		r.Istiod = &m
	case r.ZooKeeper != nil:
		z := *r.ZooKeeper
		z.Limits = config.Limits{MaxReceive: z.Limits.MaxReceive}
		r.ZooKeeper = &z
	case r.Nacos != nil:
		n := *r.Nacos
		n.Limits = config.Limits{MaxReceive: n.Limits.MaxReceive}
		r.Nacos = &n
	}
	return r
}

// identity returns what entries tell of the registry that they came from, or
// what that depends on.
func identity(r config.Registry) config.Registry {
	switch {
	case r.Istiod != nil:
		return config.Registry{Istiod: &config.Istiod{ID: r.Istiod.ID, Subsets: r.Istiod.Subsets}}
	case r.ZooKeeper != nil:
		return config.Registry{ZooKeeper: &config.ZooKeeper{ID: r.ZooKeeper.ID, Servers: r.ZooKeeper.Servers}}
	case r.Nacos != nil:
		return config.Registry{Nacos: &config.Nacos{ID: r.Nacos.ID, Namespace: r.Nacos.Namespace, Servers: r.Nacos.Servers}}
	}
	return config.Registry{}
}

// text returns settings as one text, equal where they are.
func text(settings ...any) string {
	raw, err := json.Marshal(settings)
	if err != nil {
		panic(fmt.Sprintf("settings cannot be written down: %v", err)) // all are plain values
	}
	return string(raw)
}
