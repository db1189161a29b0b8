package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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

var errNoNode = errors.New("ZooKeeper cannot have a node for it")

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
	interest, one := registry.NewInterest(), &session{conn: o.Conn}
	so := zookeeper.SourceOptions{Formats: []zookeeper.Format{codec}, Interest: interest, Log: log}
	if o.Identity != "" {
		so.Client = one.client
	}
	source, err := zookeeper.NewSource(o.Conn, so)
	if err != nil {
		return Backend{}, err //nolint:wrapcheck // it says zookeeper
	}
	b := Backend{
		Kind: "zookeeper", Place: placeOf("zookeeper", o.Conn.Servers, form.options.Root, form.Name),
		Source: &sessionSource{source, one}, Interest: interest, Names: plainNames, Shows: form.shows,
		Err: func() error { return unreachable(source.State().LastError) }, used: new(atomic.Bool),
		Valid: func(name string) error {
			if _, ok := codec.Group(strings.Replace(codec.Parents(), "*", name, 1)); !ok || strings.Trim(name, ".") == "" || strings.Contains(name, "/") {
				return errNoNode
			}
			return nil
		},
	}
	if o.Identity == "" {
		return b, nil
	}
	p := newTargetPublisher(nil, codec, b.Shows, markOf(o.Identity).Owner, log)
	p.open = func() (registry.Target, error) {
		client, err := one.client()
		if err != nil {
			return nil, err
		}
		return zookeeper.NewTarget(client, zookeeper.TargetOptions{
			Owner: ownerName(o.Identity), Layouts: []zookeeper.Layout{codec}, Lifetime: zookeeper.Session, Unregistered: true, Log: log,
		})
	}
	b.Publisher, b.Holds = &sessionPublisher{p, one}, p.holds
	return b, nil
}

// session is the one session of a process, over which it reads and publishes. It is
// made when it is used first, as nobody closes that of a backend that no client was
// made of, and ends with its last user.
type session struct {
	conn zookeeper.Options

	mu    sync.Mutex
	made  *zookeeper.Client
	users int
}

// client returns the session's client. It is called by a user.
func (s *session) client() (*zookeeper.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made != nil {
		return s.made, nil
	}
	client, err := zookeeper.Dial(s.conn)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says zookeeper
	}
	s.made = client
	return client, nil
}

// use counts a user for as long as a function runs.
func (s *session) use(do func() error) error {
	s.mu.Lock()
	s.users++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		var last *zookeeper.Client
		if s.users--; s.users == 0 {
			last, s.made = s.made, nil
		}
		s.mu.Unlock()
		if last != nil {
			last.Close() // and with it what is left of ours
		}
	}()
	return do()
}

type sessionSource struct {
	*zookeeper.Source
	session *session
}

// Run implements registry.Source.
func (s *sessionSource) Run(ctx context.Context, t *registry.Table) error {
	return s.session.use(func() error { return s.Source.Run(ctx, t) })
}

type sessionPublisher struct {
	*targetPublisher
	session *session
}

// Run implements Publisher.
func (p *sessionPublisher) Run(ctx context.Context, grace time.Duration) error {
	return p.session.use(func() error { return p.targetPublisher.Run(ctx, grace) })
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
