package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// ZooKeeperOptions say how a ZooKeeper ensemble is used.
type ZooKeeperOptions struct {
	Conn zookeeper.Options

	// Format is how instances are written and read, by the name that a bridge's
	// configuration has for it; empty: dubbo-interface, Dubbo's discovery by
	// interface. In any other services are found by the names of applications.
	Format string

	// Root holds the services; empty: the folder that the format's framework uses,
	// /dubbo for Dubbo.
	Root string

	// Identity marks what this process provides as its own, so that it finds it
	// again after a restart; empty for consumers alone. Each live process needs one
	// of its own, such as the name of its pod: what another session holds under it
	// is left alone and told as ErrConflict.
	Identity string

	Log *slog.Logger // nil: nothing is logged
}

// ZooKeeper returns a ZooKeeper ensemble as a backend. What is provided is
// ephemeral and goes with the process.
func ZooKeeper(o ZooKeeperOptions) (Backend, error) {
	log := orDiscard(o.Log)
	form, err := formatNamed(o.Format, func(f format) bool { return f.zookeeper != nil })
	if err != nil {
		return Backend{}, fmt.Errorf("zookeeper: %w", err)
	}
	codec, err := form.zookeeper(o)
	if err != nil {
		return Backend{}, fmt.Errorf("zookeeper: %w", err)
	}
	interest := registry.NewInterest()
	source, err := zookeeper.NewSource(o.Conn, zookeeper.SourceOptions{Formats: []zookeeper.Format{codec}, Interest: interest, Log: log})
	if err != nil {
		return Backend{}, err //nolint:wrapcheck // it says zookeeper
	}
	b := Backend{
		Kind: "zookeeper", Source: source, Interest: interest, Names: plainNames, Shows: form.shows,
		Fault: func() error { return unreachable(source.State().LastError) },
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

// NacosOptions say how a Nacos cluster is used.
type NacosOptions struct {
	Conn nacos.Options

	Format string // as in ZooKeeperOptions
	Group  string // holds the services; empty: DEFAULT_GROUP

	Identity string // as in ZooKeeperOptions

	Log *slog.Logger // nil: nothing is logged
}

// Nacos returns a Nacos cluster as a backend. What is provided lives as long as
// the connection and is published again over the next one.
func Nacos(o NacosOptions) (Backend, error) {
	log := orDiscard(o.Log)
	form, err := formatNamed(o.Format, func(f format) bool { return f.nacos != nil })
	if err != nil {
		return Backend{}, fmt.Errorf("nacos: %w", err)
	}
	codec, err := form.nacos(o)
	if err != nil {
		return Backend{}, fmt.Errorf("nacos: %w", err)
	}
	interest := registry.NewInterest()
	source, err := nacos.NewSource(o.Conn, nacos.SourceOptions{
		Formats: []nacos.Format{codec}, Scopes: []nacos.Scope{{Namespace: o.Conn.Namespace, Group: o.Group}}, Interest: interest,
	})
	if err != nil {
		return Backend{}, fmt.Errorf("nacos: %w", err)
	}
	b := Backend{
		Kind: "nacos", Source: source, Interest: interest, Names: form.services, Shows: form.shows,
		Fault: func() error {
			s := source.State()
			if errors.Is(s.Login.Err, nacos.ErrDenied) && !s.Connected {
				return caused(s.Login.Err, ErrUnreachable)
			}
			return unreachable(s.LastError)
		},
	}
	if o.Identity == "" {
		return b, nil
	}
	client, err := nacos.New(o.Conn)
	if err != nil {
		return Backend{}, fmt.Errorf("nacos: %w", err)
	}
	target, err := nacos.NewTarget(client, nacos.TargetOptions{Owner: markOf(o.Identity).Owner, Layouts: []nacos.Layout{nacosScope{codec, o}}})
	if err != nil {
		return Backend{}, fmt.Errorf("nacos: %w", err)
	}
	b.Publisher = newTargetPublisher(target, codec, b.Shows, markOf(o.Identity).Owner, log).served(client.Run)
	return b, nil
}

// nacosScope is where the services of a process lie.
type nacosScope struct {
	nacosCodec
	o NacosOptions
}

// Scopes implements nacos.Layout.
func (s nacosScope) Scopes() []registry.Group {
	return []registry.Group{{Kind: s.Kind(), Namespace: s.o.Conn.Namespace, Group: s.o.Group}}
}

// Foreign implements nacos.Exclusive.
func (s nacosScope) Foreign(service string, in metadata.NacosInstance) error {
	if f, ok := s.nacosCodec.(nacos.Exclusive); ok {
		return f.Foreign(service, in) //nolint:wrapcheck // says what the instance is
	}
	return nil
}

func markOf(identity string) metadata.Mark {
	if identity == "" {
		return metadata.Mark{}
	}
	return metadata.NewMark(ownerName(identity), identity)
}

// ownerName returns the owner that an identity stands for. It is none that a
// bridge may have, because no name of an owner holds a colon: a bridge would
// delete as its own what is provided under its name.
func ownerName(identity string) string { return "client:" + identity }

func unreachable(reason string) error {
	if reason == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUnreachable, reason)
}

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
