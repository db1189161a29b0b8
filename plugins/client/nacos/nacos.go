// Package nacos makes a Nacos cluster the registry of an application.
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

// nacosCodec encodes services as entries and decodes them.
type nacosCodec interface {
	source.Format
	metadata.Codec
}

// Options say how a client uses a Nacos cluster.
type Options struct {
	Conn source.Options

	// Format is the format of instances, by its name in a bridge's configuration; empty:
	// dubbo-interface.
	Format string

	Group string // of the services; empty: DEFAULT_GROUP

	// Identity marks the instances of this process as its own; empty for consumers only.
	// Each live process needs its own identity, such as the name of its pod.
	Identity string

	Log *slog.Logger // nil: nothing is logged
}

// New returns a Nacos cluster as a backend. Published instances exist as long as the
// connection, and are published again over the next one.
func New(o Options) (client.Backend, error) {
	form, err := client.FormIn(seam.Key{}, format.Nacos, o.Format, format.Options{
		Namespace: o.Conn.Namespace, Group: o.Group, Mark: client.MarkOf(seam.Key{}, o.Identity),
	})
	if err != nil {
		return client.Backend{}, fmt.Errorf("nacos: %w", err)
	}
	codec, err := format.Codec[nacosCodec](form.Descriptor, format.Nacos, form.Options)
	if err != nil {
		return client.Backend{}, fmt.Errorf("nacos: %w", err)
	}
	interest := registry.NewInterest()
	reader, err := source.NewSource(o.Conn, source.SourceOptions{
		Formats: []source.Format{codec}, Interest: interest,
		Scopes: []source.Scope{{Namespace: o.Conn.Namespace, Group: o.Group}},
	})
	if err != nil {
		return client.Backend{}, fmt.Errorf("nacos: %w", err)
	}
	place := cmp.Or(o.Conn.Namespace, "public") + "/" + cmp.Or(o.Group, "DEFAULT_GROUP")
	b := client.Backend{
		Kind:  "nacos",
		Place: client.PlaceOf(seam.Key{}, "nacos", o.Conn.Servers, place, form.Name),
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
	target, err := source.NewTarget(writer, source.TargetOptions{
		Owner: client.MarkOf(seam.Key{}, o.Identity).Owner, Layouts: []source.Layout{nacosScope{codec, o}},
	})
	if err != nil {
		return client.Backend{}, fmt.Errorf("nacos: %w", err)
	}
	b.PublishBy(seam.Key{}, client.TargetPublisher{
		Target: target, Serve: writer.Run, Codec: codec, Log: o.Log,
		Owner: client.MarkOf(seam.Key{}, o.Identity).Owner,
	})
	return b, nil
}

// nacosScope is the layout of the namespace and group that a process publishes in.
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
