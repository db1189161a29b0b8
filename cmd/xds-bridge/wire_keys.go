package main

import (
	"context"
	"net"

	"google.golang.org/grpc"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
	"github.com/xds-bridge/xds-bridge/registry/mesh/keys"
)

// publisher makes what publishes the service keys of imported hosts at every
// replica of istiod, nil where that is off.
func (b *builder) publisher(name string, m *config.Istiod) (*keys.Publisher, error) {
	if m.Import.Keys == "off" {
		return nil, nil //nolint:nilnil // it was switched off
	}
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
	resolved := debug.DNS(net.DefaultResolver, m.Address)
	var known *debug.Endpoints
	if f := b.feeds[name]; f != nil {
		known = f.replicas(m.Address)
	}
	_, port, _ := net.SplitHostPort(m.Address)
	return func(ctx context.Context) ([]string, error) {
		if known == nil {
			return resolved(ctx)
		}
		found, err := known.Replicas(ctx)
		if err != nil {
			return resolved(ctx)
		}
		for i, a := range found {
			if host, _, err := net.SplitHostPort(a); err == nil {
				found[i] = net.JoinHostPort(host, port)
			}
		}
		return found, nil
	}
}
