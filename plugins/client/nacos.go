package client

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

// nacosCodec turns what is provided into entries and back.
type nacosCodec interface {
	nacos.Format
	metadata.Codec
}

// NacosOptions say how a Nacos cluster is used.
type NacosOptions struct {
	Conn nacos.Options

	Format string // as in ZooKeeperOptions
	Group  string // holds the services; empty: DEFAULT_GROUP

	Identity string // as in ZooKeeperOptions

	Log *slog.Logger // nil: nothing is logged
}

// Nacos returns a Nacos cluster as a backend. What is provided exists as long as
// the connection and is published again over the next one.
func Nacos(o NacosOptions) (Backend, error) {
	log := orDiscard(o.Log)
	form, err := formIn(format.Nacos, o.Format, format.Options{Namespace: o.Conn.Namespace, Group: o.Group, Mark: markOf(o.Identity)})
	if err != nil {
		return Backend{}, fmt.Errorf("nacos: %w", err)
	}
	codec, err := format.Codec[nacosCodec](form.Descriptor, format.Nacos, form.options)
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
		Kind:  "nacos",
		Place: placeOf("nacos", o.Conn.Servers, cmp.Or(o.Conn.Namespace, "public")+"/"+cmp.Or(o.Group, "DEFAULT_GROUP"), form.Name),
		used:  new(atomic.Bool),
		Valid: func(name string) error {
			return metadata.CheckNacosService(o.Conn.Namespace, cmp.Or(o.Group, "DEFAULT_GROUP"), name)
		},
		Source: source, Interest: interest, Names: form.nacosServices, Shows: form.shows,
		Err: func() error {
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
	p := newTargetPublisher(target, codec, b.Shows, markOf(o.Identity).Owner, log).served(client.Run)
	b.Publisher, b.Holds = p, p.holds
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

func (u *registryURL) nacos(files *tlsfile.Files, byDefault string) (Backend, error) {
	o := NacosOptions{Format: cmp.Or(u.one("format"), byDefault), Group: u.one("group"), Identity: u.identity(), Log: u.log}
	scheme := "http://"
	if files != nil {
		scheme = "https://"
		o.Conn.TLS = files.Config
	}
	for server := range strings.SplitSeq(u.servers, ",") {
		o.Conn.Servers = append(o.Conn.Servers, scheme+server)
	}
	o.Conn.Namespace, o.Conn.Log = u.path, u.log
	o.Conn.Username = u.one("username")
	file := u.one("passwordFile")
	u.together("username", o.Conn.Username, "passwordFile", file)
	if file != "" {
		o.Conn.Password = func() (string, error) {
			text, err := os.ReadFile(file)
			return strings.TrimSpace(string(text)), err
		}
	}
	if err := u.done(); err != nil {
		return Backend{}, err
	}
	return Nacos(o)
}
