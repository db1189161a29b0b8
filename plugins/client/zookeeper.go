package client

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// zooKeeperCodec turns what is provided into entries and back.
type zooKeeperCodec interface {
	zookeeper.Format
	metadata.Codec
}

// ZooKeeperOptions say how a ZooKeeper ensemble is used.
type ZooKeeperOptions struct {
	Conn zookeeper.Options

	// Format is how instances are written and read, by the name that a bridge's
	// configuration has for it; empty: dubbo-interface, Dubbo's discovery by
	// interface. In any other services are found by the names of applications.
	Format string

	// Root holds the services; empty: the path that the format's framework uses,
	// /dubbo for Dubbo.
	Root string

	// Identity marks what this process provides as its own, so that it finds it
	// again after a restart; empty for consumers alone. Each live process has one
	// of its own, such as the name of its pod: what another session holds under it
	// is left alone and reported as ErrConflict.
	Identity string

	Log *slog.Logger // nil: nothing is logged
}

// ZooKeeper returns a ZooKeeper ensemble as a backend. What is provided is
// ephemeral and goes with the process.
func ZooKeeper(o ZooKeeperOptions) (Backend, error) {
	log := orDiscard(o.Log)
	form, err := formIn(format.ZooKeeper, o.Format, format.Options{Root: o.Root, Mark: markOf(o.Identity)})
	if err != nil {
		return Backend{}, fmt.Errorf("zookeeper: %w", err)
	}
	codec, err := format.Codec[zooKeeperCodec](form.Descriptor, format.ZooKeeper, form.options)
	if err != nil {
		return Backend{}, fmt.Errorf("zookeeper: %w", err)
	}
	interest := registry.NewInterest()
	source, err := zookeeper.NewSource(o.Conn, zookeeper.SourceOptions{Formats: []zookeeper.Format{codec}, Interest: interest, Log: log})
	if err != nil {
		return Backend{}, err //nolint:wrapcheck // it says zookeeper
	}
	b := Backend{
		Kind: "zookeeper", Place: placeOf("zookeeper", o.Conn.Servers, form.options.Root, form.Name), Source: source, Interest: interest, Names: plainNames, Shows: form.shows,
		Err: func() error { return unreachable(source.State().LastError) },
	}
	if o.Identity == "" {
		return b, nil
	}
	// The connection is made when it is used: nobody closes that of a backend
	// that no client was made of.
	p := newTargetPublisher(nil, codec, b.Shows, markOf(o.Identity).Owner, log)
	var client *zookeeper.Client
	p.open = func() (registry.Target, error) {
		if client, err = zookeeper.Dial(o.Conn); err != nil {
			return nil, err //nolint:wrapcheck // it says zookeeper
		}
		target, err := zookeeper.NewTarget(client, zookeeper.TargetOptions{
			Owner: ownerName(o.Identity), Layouts: []zookeeper.Layout{codec}, Lifetime: zookeeper.Session, Unregistered: true, Log: log,
		})
		if err != nil {
			client.Close()
			return nil, err //nolint:wrapcheck // it says zookeeper
		}
		return target, nil
	}
	b.Publisher = p.served(func(ctx context.Context) error {
		<-ctx.Done()
		client.Close() // and with it what is left of ours
		return nil
	})
	return b, nil
}

func (u *registryURL) zooKeeper(files *tlsfile.Files, byDefault string) (Backend, error) {
	o := ZooKeeperOptions{Format: cmp.Or(u.one("format"), byDefault), Identity: u.identity(), Log: u.log}
	if u.path != "" {
		o.Root = "/" + u.path
	}
	o.Conn.Servers, o.Conn.Log = strings.Split(u.servers, ","), u.log
	o.Conn.User, o.Conn.PasswordFile = u.one("user"), u.one("passwordFile")
	u.together("user", o.Conn.User, "passwordFile", o.Conn.PasswordFile)
	o.Conn.SessionTimeout = u.duration("sessionTimeout")
	if files != nil {
		o.Conn.TLS = files.Config
	}
	if err := u.done(); err != nil {
		return Backend{}, err
	}
	return ZooKeeper(o)
}
