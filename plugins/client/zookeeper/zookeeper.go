// Package zookeeper makes a ZooKeeper ensemble the registry of an application.
package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/seam"
	"github.com/xds-bridge/xds-bridge/registry"
	zk "github.com/xds-bridge/xds-bridge/registry/zookeeper"
)

// zooKeeperCodec encodes services as entries and decodes them.
type zooKeeperCodec interface {
	zk.Format
	metadata.Codec
}

// Options say how a client uses a ZooKeeper ensemble.
type Options struct {
	Conn zk.Options

	// Format is the format of instances, by its name in a bridge's configuration. Empty:
	// dubbo-interface, Dubbo's interface-level discovery. In every other format services are
	// found by the names of applications.
	Format string

	// Root is the parent path of all services; empty: the default of the format's framework,
	// such as /dubbo.
	Root string

	// Identity marks the entries of this process as its own, so that it recognizes them after
	// a restart; empty for consumers only. Each live process needs its own identity, such as
	// the name of its pod. Entries of another session under the same identity are left
	// unchanged and reported as ErrConflict.
	Identity string

	Log *slog.Logger // nil: nothing is logged
}

var errNoNode = errors.New("not a valid name of a ZooKeeper node")

// New returns a ZooKeeper ensemble as a backend. Published entries are ephemeral: they are
// deleted when the session of the process ends.
func New(o Options) (client.Backend, error) {
	log := o.Log
	form, err := client.FormIn(seam.Key{}, format.ZooKeeper, o.Format, format.Options{
		Root: o.Root, Mark: client.MarkOf(seam.Key{}, o.Identity),
	})
	if err != nil {
		return client.Backend{}, fmt.Errorf("zookeeper: %w", err)
	}
	codec, err := format.Codec[zooKeeperCodec](form.Descriptor, format.ZooKeeper, form.Options)
	if err != nil {
		return client.Backend{}, fmt.Errorf("zookeeper: %w", err)
	}
	interest, one := registry.NewInterest(), &session{conn: o.Conn}
	so := zk.SourceOptions{Formats: []zk.Format{codec}, Interest: interest, Log: log}
	if o.Identity != "" {
		so.Client = one.client
	}
	source, err := zk.NewSource(o.Conn, so)
	if err != nil {
		return client.Backend{}, err
	}
	b := client.Backend{
		Kind: "zookeeper", Place: client.PlaceOf(seam.Key{}, "zookeeper", o.Conn.Servers, form.Options.Root, form.Name),
		Source: &sessionSource{source, one}, Interest: interest, Names: form.ZooKeeperNames, Shows: form.Shows,
		Err: func() error { return unreachable(source.State().LastError) },
		Valid: func(name string) error {
			_, ok := codec.Group(strings.Replace(codec.Parents(), "*", name, 1))
			if !ok || strings.Trim(name, ".") == "" || strings.Contains(name, "/") {
				return errNoNode
			}
			return nil
		},
	}
	b.Once()
	if o.Identity == "" {
		return b, nil
	}
	owner := client.OwnerName(seam.Key{}, o.Identity)
	openTarget := func() (registry.Target, error) {
		c, err := one.client()
		if err != nil {
			return nil, err
		}
		return zk.NewTarget(c, zk.TargetOptions{
			Owner: owner, Layouts: []zk.Layout{codec}, Lifetime: zk.Session, Unregistered: true, Log: log,
		})
	}
	b.PublishBy(seam.Key{}, client.TargetPublisher{
		Codec: codec, Owner: client.MarkOf(seam.Key{}, o.Identity).Owner, Log: log, Open: openTarget,
	})
	b.Publisher = &sessionPublisher{b.Publisher, one}
	return b, nil
}

func unreachable(reason string) error {
	if reason == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", client.ErrUnreachable, reason)
}

// session is the ZooKeeper session that the source and the publisher of a backend share. It
// begins with its first use and ends with its last user. It cannot begin earlier: a backend
// of which no client is made is never closed.
type session struct {
	conn zk.Options

	mu    sync.Mutex
	made  *zk.Client
	users int
}

// client returns the session's client. It must be called within use.
func (s *session) client() (*zk.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made != nil {
		return s.made, nil
	}
	made, err := zk.Dial(s.conn)
	if err != nil {
		return nil, err
	}
	s.made = made
	return made, nil
}

// use runs do as a user of the session, and closes the session after its last user.
func (s *session) use(do func() error) error {
	s.mu.Lock()
	s.users++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		var last *zk.Client
		if s.users--; s.users == 0 {
			last, s.made = s.made, nil
		}
		s.mu.Unlock()
		if last != nil {
			last.Close() // deletes what is still published
		}
	}()
	return do()
}

type sessionSource struct {
	*zk.Source
	session *session
}

// Run implements registry.Source.
func (s *sessionSource) Run(ctx context.Context, t *registry.Table) error {
	return s.session.use(func() error { return s.Source.Run(ctx, t) })
}

type sessionPublisher struct {
	client.Publisher
	session *session
}

// Run implements client.Publisher.
func (p *sessionPublisher) Run(ctx context.Context, grace time.Duration) error {
	return p.session.use(func() error { return p.Publisher.Run(ctx, grace) })
}

// Kind lets client.Open open URLs of the schemes zookeeper and zookeeper+tls.
func Kind() client.Kind { return client.NewKind(seam.Key{}, "zookeeper", open) }

func open(u *client.URL) (client.Backend, error) {
	o := Options{Format: cmp.Or(u.One("format"), u.Format), Identity: u.Identity(), Log: u.Log}
	if u.Path != "" {
		o.Root = "/" + u.Path
	}
	o.Conn.Servers, o.Conn.Log = strings.Split(u.Servers, ","), u.Log
	o.Conn.User, o.Conn.PasswordFile = u.One("user"), u.One("passwordFile")
	u.Together("user", o.Conn.User, "passwordFile", o.Conn.PasswordFile)
	o.Conn.SessionTimeout = u.Duration("sessionTimeout")
	if u.TLS != nil {
		o.Conn.TLS = u.TLS.Config
	}
	if err := u.Done(); err != nil {
		return client.Backend{}, err
	}
	return New(o)
}
