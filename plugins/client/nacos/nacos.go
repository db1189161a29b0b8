// Package nacos has applications use a Nacos cluster as their registry.
package nacos

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/format"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/seam"
	"github.com/xds-bridge/xds-bridge/registry"
	source "github.com/xds-bridge/xds-bridge/registry/nacos"
)

// nacosCodec turns what is provided into entries and back.
type nacosCodec interface {
	source.Format
	metadata.Codec
}

// Options say how a Nacos cluster is used.
type Options struct {
	Conn source.Options

	Format string // as in ZooKeeperOptions
	Group  string // holds the services; empty: DEFAULT_GROUP

	Identity string // as in ZooKeeperOptions

	Log *slog.Logger // nil: nothing is logged
}

// New returns a Nacos cluster as a backend. What is provided exists as long as
// the connection and is published again over the next one.
func New(o Options) (client.Backend, error) {
	form, err := client.FormIn(seam.Key{}, format.Nacos, o.Format, format.Options{Namespace: o.Conn.Namespace, Group: o.Group, Mark: client.MarkOf(seam.Key{}, o.Identity)})
	if err != nil {
		return client.Backend{}, fmt.Errorf("nacos: %w", err)
	}
	codec, err := format.Codec[nacosCodec](form.Descriptor, format.Nacos, form.Options)
	if err != nil {
		return client.Backend{}, fmt.Errorf("nacos: %w", err)
	}
	interest := registry.NewInterest()
	reader, err := source.NewSource(o.Conn, source.SourceOptions{
		Formats: []source.Format{codec}, Scopes: []source.Scope{{Namespace: o.Conn.Namespace, Group: o.Group}}, Interest: interest,
	})
	if err != nil {
		return client.Backend{}, fmt.Errorf("nacos: %w", err)
	}
	b := client.Backend{
		Kind:  "nacos",
		Place: client.PlaceOf(seam.Key{}, "nacos", o.Conn.Servers, cmp.Or(o.Conn.Namespace, "public")+"/"+cmp.Or(o.Group, "DEFAULT_GROUP"), form.Name),
		Valid: func(name string) error {
			return metadata.CheckNacosService(o.Conn.Namespace, cmp.Or(o.Group, "DEFAULT_GROUP"), name)
		},
		Source: reader, Interest: interest, Names: form.NacosServices, Shows: form.Shows,
		Err: func() error {
			s := reader.State()
			if errors.Is(s.Login.Err, source.ErrDenied) && !s.Connected {
				return fmt.Errorf("%w: %w", client.ErrDenied, s.Login.Err)
			}
			if s.LastError == "" {
				return nil
			}
			return fmt.Errorf("%w: %s", client.ErrUnreachable, s.LastError)
		},
	}
	b.Once()
	if o.Identity == "" {
		return b, nil
	}
	writer, err := source.New(o.Conn)
	if err != nil {
		return client.Backend{}, fmt.Errorf("nacos: %w", err)
	}
	target, err := source.NewTarget(writer, source.TargetOptions{Owner: client.MarkOf(seam.Key{}, o.Identity).Owner, Layouts: []source.Layout{nacosScope{codec, o}}})
	if err != nil {
		return client.Backend{}, fmt.Errorf("nacos: %w", err)
	}
	b.PublishBy(seam.Key{}, client.TargetPublisher{
		Target: target, Serve: writer.Run, Codec: codec, Owner: client.MarkOf(seam.Key{}, o.Identity).Owner, Log: o.Log,
	})
	return b, nil
}

// nacosScope is where the services of a process lie.
type nacosScope struct {
	nacosCodec
	o Options
}

// Scopes implements source.Layout.
func (s nacosScope) Scopes() []registry.Group {
	return []registry.Group{{Kind: s.Kind(), Namespace: s.o.Conn.Namespace, Group: s.o.Group}}
}

// Foreign implements source.Exclusive.
func (s nacosScope) Foreign(service string, in metadata.NacosInstance) error {
	if f, ok := s.nacosCodec.(source.Exclusive); ok {
		return f.Foreign(service, in)
	}
	return nil
}

// Kind lets client.Open open URLs of the schemes nacos and nacos+tls.
func Kind() client.Kind { return client.NewKind(seam.Key{}, "nacos", open) }

func open(u *client.URL) (client.Backend, error) {
	o := Options{Format: cmp.Or(u.One("format"), u.Format), Group: u.One("group"), Identity: u.Identity(), Log: u.Log}
	scheme := "http://"
	if u.TLS != nil {
		scheme = "https://"
		o.Conn.TLS = u.TLS.Config
	}
	for server := range strings.SplitSeq(u.Servers, ",") {
		o.Conn.Servers = append(o.Conn.Servers, scheme+server)
	}
	o.Conn.Namespace, o.Conn.Log = u.Path, u.Log
	o.Conn.Username = u.One("username")
	file := u.One("passwordFile")
	u.Together("username", o.Conn.Username, "passwordFile", file)
	if file != "" {
		o.Conn.Password = func() (string, error) {
			text, err := os.ReadFile(file)
			return strings.TrimSpace(string(text)), err
		}
	}
	if err := u.Done(); err != nil {
		return client.Backend{}, err
	}
	return New(o)
}
