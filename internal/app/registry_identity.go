package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// registryID returns what a registry is called in the paths of entries.
func (b *builder) registryID(name string) *registryID {
	return first(b.runtime.registryIDs, func(w *registryID) bool { return w.name == name })
}

// named returns the registries that bridges lead from or to.
func (b *builder) named() []string {
	var all []string
	for _, x := range b.cfg.Bridges {
		all = append(all, x.From, x.To)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// joined returns the registry identity of a registry: that of before where its id
// depends on nothing that changed, or a new one.
func (b *builder) joined(name string) *registryID {
	given := ""
	r := b.cfg.Registries[name]
	switch {
	case r.Istiod != nil:
		given = r.Istiod.ID
	case r.ZooKeeper != nil:
		given = r.ZooKeeper.ID
	case r.Nacos != nil:
		given = r.Nacos.ID
	}
	kept := b.keptID(name, r)
	if kept != nil && !b.dryRun {
		kept.offer = cmp.Or(given, rand.Text())
	}
	key := text(identity(r))
	if b.before != nil {
		if w := first(b.before.registryIDs, func(w *registryID) bool { return w.name == name && w.key == key }); w != nil {
			b.onMove = append(b.onMove, func() { w.reach(kept) })
			return w
		}
	}
	w := newRegistryID(name, given, kept, b.log)
	w.key = key
	return w
}

// keptID returns where a registry keeps its id; nil for one that keeps none.
func (b *builder) keptID(name string, r config.Registry) *keptID {
	switch {
	case r.ZooKeeper != nil:
		return b.zookeeperID(name, r.ZooKeeper)
	case r.Nacos != nil:
		return b.nacosID(name, r.Nacos)
	}
	return nil
}

// zookeeperID asks an ensemble for its id over a connection that ends with the
// answer.
func (b *builder) zookeeperID(name string, z *config.ZooKeeper) *keptID {
	o := b.zookeeperOptions(name, z)
	o.Observe, o.Log = nil, nil
	return &keptID{where: zookeeper.IDNode, ask: func(ctx context.Context, offer string) (string, error) {
		client, err := zookeeper.Dial(o) //nolint:contextcheck // it ends by Close
		if err != nil {
			return "", err //nolint:wrapcheck // it names the option
		}
		defer client.Close()
		return client.ID(ctx, offer, zookeeper.Access(z.ACL))
	}}
}

// nacosID asks a cluster for the id of its namespace over a connection that
// ends with the answer.
func (b *builder) nacosID(name string, n *config.Nacos) *keptID {
	o := b.nacosOptions(name, n)
	o.Log = nil
	return &keptID{where: "config " + nacos.IDData + " of group " + nacos.IDGroup, ask: func(ctx context.Context, offer string) (string, error) {
		client, err := nacos.New(o)
		if err != nil {
			return "", err //nolint:wrapcheck // it names the option
		}
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- client.Run(ctx) }()
		id, err := client.ID(ctx, offer)
		cancel()
		return id, errors.Join(err, <-ended)
	}}
}
