package app

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/keys"
)

// A keyPublisher publishes the service keys of all hosts that are imported into
// a mesh, whichever end they come by, at every replica of its istiod.
type keyPublisher struct {
	mesh     string
	key      string // of all that it depends on
	election *election
	*keys.Publisher
}

// tasks returns what runs while the mesh is written to.
func (a *keyPublisher) tasks() []func(context.Context) error {
	return []func(context.Context) error{named("keys of "+a.mesh, func(ctx context.Context) error {
		return publishKeys(ctx, a.election, a.Publisher)
	})}
}

// keyPublishers makes one for every mesh that a bridge leads to, unless that is
// off. One of before whose settings are the same goes on.
func (b *builder) keyPublishers() error {
	for _, name := range distinct(b.cfg.Bridges, func(x config.Bridge) string { return x.To }) {
		m := b.cfg.Registries[name].Istiod
		if m == nil || m.Import.Keys == "off" {
			continue
		}
		a := &keyPublisher{mesh: name, key: keyPublisherKey(b.cfg, name)}
		var err error
		if a.election, err = b.election(name); err != nil {
			return err
		}
		if old := b.before.keyPublisher(name); old != nil && old.key == a.key {
			a = old
		} else if a.Publisher, err = b.publisher(name, m); err != nil {
			return fmt.Errorf("registries.%s: %w", name, err)
		}
		b.runtime.keyPublishers = append(b.runtime.keyPublishers, a)
	}
	return nil
}

// keyPublisher returns the key publisher of a mesh, nil where there is none.
func (h *runtime) keyPublisher(mesh string) *keyPublisher {
	if h == nil {
		return nil
	}
	return first(h.keyPublishers, func(a *keyPublisher) bool { return a.mesh == mesh })
}

// ends returns the names of the ends of a registry.
func (h *runtime) ends(registry string) []string {
	var names []string
	for _, o := range h.sinks {
		if o.at.registry == registry {
			names = append(names, o.at.String())
		}
	}
	return names
}

// publisher makes what publishes keys at every replica of istiod.
func (b *builder) publisher(name string, m *config.Istiod) (*keys.Publisher, error) {
	stream, err := adsOptions(m)
	if err != nil {
		return nil, err
	}
	c := xdsCredentials(m)
	p, err := keys.New(keys.Options{
		Node: stream.Node, Replicas: b.xdsReplicas(name, m),
		Dial: func(replica string) (grpc.ClientConnInterface, func(), error) {
			return dialReplica(replica, c, stream.MaxReceive)
		},
		Log: b.log.With("component", "keys", "peer", name),
	})
	return p, err //nolint:wrapcheck // build names the registry
}

// xdsReplicas says where the replicas of istiod speak xDS: at the endpoints of
// istiod's own service where its mesh is read, or else where its name leads.
func (b *builder) xdsReplicas(name string, m *config.Istiod) func(context.Context) ([]string, error) {
	known := &debug.Endpoints{}
	if f := b.sourceTables[name]; f != nil {
		known = f.replicas(m.Address)
	}
	return known.Behind(net.DefaultResolver, m.Address, 0)
}
