package main

import (
	"crypto/tls"
	"strings"

	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/metadata/dubbo"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

// nacos makes the target that a Nacos cluster is, and the codecs of all
// formats of the bridges that lead to it.
func (b *builder) nacos(name string, n *config.Nacos, bridges []config.Bridge) (outlet, [][]codec, error) {
	var codecs [][]codec
	var layouts []nacos.Layout
	groups := make(map[string]bool)
	for _, x := range bridges {
		var own []codec
		for _, f := range x.Formats {
			c, err := dubbo.NewNacos(b.dubbo(x, f))
			if err != nil {
				return outlet{}, nil, err //nolint:wrapcheck // build names the registry
			}
			own = append(own, c)
			if !groups[f.Group] {
				groups[f.Group] = true
				layouts = append(layouts, dubboScope{namespace: n.Namespace, group: f.Group})
			}
		}
		codecs = append(codecs, own)
	}
	client, err := nacos.New(b.nacosOptions(name, n))
	if err != nil {
		return outlet{}, nil, err //nolint:wrapcheck // build names the registry
	}
	target, err := nacos.NewTarget(client, nacos.TargetOptions{Owner: metadata.Fingerprint(b.cfg.Owner, metadata.OwnerLen), Layouts: layouts})
	if err != nil {
		return outlet{}, nil, err //nolint:wrapcheck // build names the registry
	}
	return outlet{
		name: name, kind: "nacos", target: target, serve: client.Run, check: checkNacos(n, client, target),
		state: func() admin.TargetState { return nacosState(client.State()) },
		fault: func() string { return client.State().LastError },
	}, codecs, nil
}

// nacosOptions says how a Nacos cluster is reached and as whom.
func (b *builder) nacosOptions(name string, n *config.Nacos) nacos.Options {
	o := nacos.Options{
		Servers: n.Servers, Namespace: n.Namespace, Username: n.Username, MaxReceive: int(n.Limits.MaxReceive),
		Log: b.log.With("component", "nacos", "peer", name), Observe: b.metrics.Nacos(name),
	}
	if n.PasswordFile != "" {
		o.Password = func() (string, error) {
			s, err := config.ReadSecret(n.PasswordFile)
			return s.Reveal(), err
		}
	}
	if n.TLS != nil {
		o.TLS = func() (*tls.Config, error) { return tlsConfig(n.TLS) }
	}
	return o
}

func nacosState(s nacos.State) admin.TargetState {
	t := admin.TargetState{Connected: s.Connected, Server: s.Server, Since: s.Since, Reconnects: s.Again, LastError: s.LastError}
	if l := s.Login; l.Username != "" {
		t.Login = &admin.Login{Username: l.Username, Expires: l.Expires, LastError: l.LastError}
	}
	return t
}

// dubboScope is where the services of Dubbo's interface-level format lie in
// Nacos: those of one group whose names are service keys of providers.
type dubboScope struct{ namespace, group string }

// Scopes implements nacos.Layout.
func (s dubboScope) Scopes() []registry.Group {
	return []registry.Group{{Kind: dubbo.Kind, Namespace: s.namespace, Group: s.group}}
}

// GroupOf implements nacos.Layout.
func (s dubboScope) GroupOf(namespace, group, service string) (registry.Group, bool) {
	g := registry.Group{Kind: dubbo.Kind, Namespace: namespace, Group: group, Name: service}
	return g, namespace == s.namespace && group == s.group && strings.HasPrefix(service, "providers:")
}

// tlsConfig reads the files anew, so that rotated ones need no restart.
func tlsConfig(t *config.TLS) (*tls.Config, error) {
	c, err := tlsfile.Files{CA: t.CAFile, Cert: t.CertFile, Key: t.KeyFile}.Config()
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file and the setting
	}
	c.ServerName = t.ServerName
	return c, nil
}
