package main

import (
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// formatsFrom returns the formats in which bridges read a registry, each once
// by the key that place makes of it.
func (b *builder) formatsFrom(name string, place func(config.Format) string) []config.Format {
	var all []config.Format
	seen := make(map[string]bool)
	for _, x := range b.cfg.Bridges {
		if x.From != name {
			continue
		}
		for _, f := range x.Formats {
			if at := f.Format + " " + place(f); !seen[at] {
				seen[at] = true
				all = append(all, f)
			}
		}
	}
	return all
}

// zookeeperSource makes the source that a ZooKeeper ensemble is.
func (b *builder) zookeeperSource(name string, z *config.ZooKeeper) (input, error) {
	var formats []zookeeper.Format
	for _, f := range b.formatsFrom(name, func(f config.Format) string { return f.Root }) {
		c, err := dubbo.NewZooKeeper(dubbo.Options{Root: f.Root})
		if err != nil {
			return input{}, err //nolint:wrapcheck // build names the registry
		}
		formats = append(formats, c)
	}
	source, err := zookeeper.NewSource(b.zookeeperOptions(name, z), zookeeper.SourceOptions{
		Formats: formats, Log: b.log.With("component", "zookeeper", "peer", name),
	})
	if err != nil {
		return input{}, err //nolint:wrapcheck // build names the registry
	}
	return input{
		name: name, kind: "zookeeper", table: registry.NewTable(), source: source, recheck: source.Recheck,
		state: func() admin.SourceState { return zookeeperState(source.State()) },
		check: checkZooKeeperSource(source),
	}, nil
}

// nacosSource makes the source that a Nacos cluster is.
func (b *builder) nacosSource(name string, n *config.Nacos) (input, error) {
	var formats []nacos.Format
	var scopes []nacos.Scope
	for _, f := range b.formatsFrom(name, func(f config.Format) string { return f.Group }) {
		c, err := dubbo.NewNacos(dubbo.Options{Namespace: n.Namespace, Group: f.Group})
		if err != nil {
			return input{}, err //nolint:wrapcheck // build names the registry
		}
		formats = append(formats, c)
		scopes = append(scopes, nacos.Scope{Namespace: n.Namespace, Group: f.Group})
	}
	source, err := nacos.NewSource(b.nacosOptions(name, n), nacos.SourceOptions{
		Formats: formats, Scopes: scopes, ListInterval: n.ListInterval.Std(),
	})
	if err != nil {
		return input{}, err //nolint:wrapcheck // build names the registry
	}
	return input{
		name: name, kind: "nacos", table: registry.NewTable(), source: source, recheck: source.Recheck,
		state: func() admin.SourceState {
			s := source.State()
			return admin.SourceState{Connected: s.Connected, Mode: "subscribe", LastError: s.LastError, LastContact: s.Since, Reconnects: s.Again}
		},
		check: checkNacosSource(source),
	}, nil
}

func zookeeperState(s zookeeper.State) admin.SourceState {
	return admin.SourceState{
		Connected: s.Connected, Mode: "watch", LastError: s.LastError, LastContact: s.Since, Reconnects: max(s.Sessions-1, 0),
	}
}
