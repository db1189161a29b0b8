package app

import (
	"net/netip"
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/dubborpc"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// zookeeperSource makes the source that a ZooKeeper ensemble is.
func (b *builder) zookeeperSource(name string, z *config.ZooKeeper) (*boundSource, error) {
	var formats []zookeeper.Format
	for _, u := range b.readings(name) {
		f, err := b.zookeeperForm(u)
		if err != nil {
			return nil, err
		}
		formats = append(formats, f)
	}
	source, err := zookeeper.NewSource(b.zookeeperOptions(name, z), zookeeper.SourceOptions{
		Formats: formats, Log: b.log.With("component", "zookeeper", "peer", name), Asker: b.asker(name),
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // build names the registry
	}
	return &boundSource{
		name: name, kind: "zookeeper", source: source, again: source.Recheck,
		state: func() admin.SourceState { return zookeeperState(source.State()) },
		check: checkZooKeeperSource(source),
	}, nil
}

// nacosSource makes the source that a Nacos cluster is.
func (b *builder) nacosSource(name string, n *config.Nacos) (*boundSource, error) {
	var formats []nacos.Format
	var scopes []nacos.Scope
	for _, u := range b.readings(name) {
		f, err := b.nacosForm(u)
		if err != nil {
			return nil, err
		}
		formats = append(formats, placedIn(f, n.Namespace, u.format.Group))
		if at := (nacos.Scope{Namespace: n.Namespace, Group: u.format.Group}); !slices.Contains(scopes, at) {
			scopes = append(scopes, at)
		}
	}
	opts := b.nacosOptions(name, n)
	opts.Observe = b.metrics.Nacos(name)
	source, err := nacos.NewSource(opts, nacos.SourceOptions{
		Formats: formats, Scopes: scopes, ListInterval: n.ListInterval.Std(), Asker: b.asker(name),
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // build names the registry
	}
	return &boundSource{
		name: name, kind: "nacos", source: source, again: source.Recheck,
		state: func() admin.SourceState {
			s := source.State()
			return admin.SourceState{Connected: s.Connected, Mode: "subscribe", LastError: s.LastError, LastContact: s.Since, Reconnects: s.Again}
		},
		check: checkNacosSource(source),
	}, nil
}

// asker asks the providers of a registry what they do not store in it, at
// addresses that some bridge from it lets pass.
func (b *builder) asker(name string) *dubborpc.Asker {
	var allow []netip.Prefix
	for _, x := range b.cfg.Bridges {
		if x.From == name {
			allow = append(allow, x.Select.Allow...)
		}
	}
	return dubborpc.New(&naming.Reach{Allow: allow})
}

func zookeeperState(s zookeeper.State) admin.SourceState {
	return admin.SourceState{
		Connected: s.Connected, Mode: "watch", LastError: s.LastError, LastContact: s.Since, Reconnects: max(s.Sessions-1, 0),
	}
}
