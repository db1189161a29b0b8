package app

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/serviceentry"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/mcp"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

// served makes the connection at which istiods read what is imported.
func (b *builder) served(at sinkKey, m *config.Istiod) (*targetConnection, error) {
	imports, name := m.Import, at.String()
	o := mcp.Options{Owner: metadata.OwnerMark(b.cfg.Owner), VIPs: imports.VIPs, Observe: b.metrics.Served(name)}
	log := b.log.With("component", "mcp", "peer", name)
	records, err := b.servedRecords(at, imports)
	if err != nil {
		return nil, err
	}
	o.Keep, o.Observe = records.places, unkept(o.Observe, log)
	if a := b.runtime.keyPublisher(at.registry); a != nil {
		o.Served = func(hosts map[naming.ServiceKey]naming.HostAddress) { a.SetOf(name, hosts) }
	}
	if b.before != nil {
		if old := b.before.sink(at); old != nil {
			o.Before, _ = old.target.(*mcp.Target)
		}
	}
	target := mcp.NewTarget(o)
	server := mcp.NewServer(target, mcp.ServerOptions{
		Access: access(imports), Setting: "registries." + at.registry + ".istiod.import.", Log: log,
	})
	doors := b.listeners
	l := &targetConnection{
		name: name, kind: "mesh", listen: at.listen,
		serve: func(ctx context.Context) error {
			return records.during(ctx, func(ctx context.Context) error {
				l, err := doors.listen(ctx, at.listen)
				if err != nil {
					return fmt.Errorf("listen for istiod: %w; change listen of the bridge", err)
				}
				return serveMesh(ctx, l, target, server)
			})
		},
		close: records.close,
		state: func() admin.TargetState { return servedState(target, server) },
		fault: func() string { return servedState(target, server).LastError },
		over: func(b *builder, bridges []config.Bridge, _ []use) (*boundTarget, error) {
			codecs, err := b.serviceEntries(b.cfg.Registries[at.registry].Istiod, bridges)
			return &boundTarget{target: target, codecs: codecs, check: checkServed(b.cfg, at, records)}, err
		},
	}
	if b.dryRun { // the address is the running bridge's
		l.serve = func(ctx context.Context) error { return records.during(ctx, untilDone) }
		if len(o.Keep) == 0 {
			l.note = "what is served at " + at.listen + " is kept nowhere, so that everything counts as new; with state.dir a plan compares with what was served last"
		}
	}
	return l, nil
}

// serviceEntries returns the codecs of all bridges that lead into a mesh.
func (b *builder) serviceEntries(m *config.Istiod, bridges []config.Bridge) ([][]metadata.Encoder, error) {
	var codecs [][]metadata.Encoder
	for _, x := range bridges {
		c, err := serviceentry.New(serviceentry.Options{
			Hosts:     meshHosts(x, m),
			Namespace: m.Import.Namespace, VIPs: m.Import.VIPs,
			Mark: metadata.NewMark(b.cfg.Owner, x.Name), Protocol: x.Formats[0].Protocol,
		})
		if err != nil {
			return nil, fmt.Errorf("bridge %s: %w", x.Name, err)
		}
		codecs = append(codecs, []metadata.Encoder{c})
	}
	return codecs, nil
}

// meshHosts are the hosts that a bridge serves in a mesh.
func meshHosts(x config.Bridge, m *config.Istiod) naming.MeshHosts {
	return naming.MeshHosts{Registry: strings.ToLower(x.From), Suffix: m.Import.Suffix}
}

// serveMesh answers istiods until ctx ends. It listens from the first moment: an
// istiod whose source is away at its start ends.
func serveMesh(ctx context.Context, l net.Listener, target *mcp.Target, server *mcp.Server) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return target.Run(ctx) })
	group.Go(func() error { return server.Serve(ctx, l) })
	return group.Wait() //nolint:wrapcheck // named by the runtime
}

func servedState(target *mcp.Target, server *mcp.Server) admin.TargetState {
	s := admin.TargetState{}
	for _, p := range server.Peers() {
		s.Readers = append(s.Readers, admin.Reader{Node: p.Node, Address: p.Address, Since: p.Since, Sent: p.Sent, Acked: p.Acked})
	}
	s.Connected = len(s.Readers) > 0
	if p, at := server.Left(); !s.Connected && !at.IsZero() {
		s.LastError = fmt.Sprintf("%s read until %s and is gone", p.Address, at.Format(time.TimeOnly))
	}
	if err := target.Ready(); err != nil && s.Connected { // else it is not why nobody reads
		s.LastError = err.Error()
	}
	return s
}

// access returns who may connect where a mesh is served.
func access(m config.Import) mcp.Access {
	a := mcp.Access{Names: m.Clients.Names, Networks: m.Clients.Networks}
	if t := m.TLS; t != nil {
		a.TLS = tlsfile.Files{CA: t.CAFile, Cert: t.CertFile, Key: t.KeyFile}.Server
	}
	return a
}
