package app

import (
	"github.com/xds-bridge/xds-bridge/config"
	"github.com/xds-bridge/xds-bridge/internal/admin"
	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry/nacos"
	"github.com/xds-bridge/xds-bridge/registry/tlsfile"
)

// nacos makes the connection to a Nacos cluster.
func (b *builder) nacos(name string, n *config.Nacos) (*targetConnection, error) {
	opts := b.nacosOptions(name, n)
	opts.Observe = b.metrics.Nacos(name)
	client, err := nacos.New(opts)
	if err != nil {
		return nil, err //nolint:wrapcheck // build names the registry
	}
	return &targetConnection{
		name: name, kind: "nacos", serve: client.Run,
		state: func() admin.TargetState { return nacosState(client.State()) },
		fault: func() string { return client.State().LastError },
		over: func(b *builder, bridges []config.Bridge, former []use) (*boundTarget, error) {
			return b.overNacos(name, client, bridges, former)
		},
	}, nil
}

// overNacos makes the target and the codecs of all formats of the bridges that
// lead to it.
func (b *builder) overNacos(name string, client *nacos.Client, bridges []config.Bridge, former []use) (*boundTarget, error) {
	n, r := b.cfg.Registries[name].Nacos, &boundTarget{}
	codecs, places, err := written(b, name, bridges, former, b.nacosForm)
	if err != nil {
		return nil, err
	}
	var layouts []nacos.Layout
	for _, named := range []bool{true, false} { // the first that claims a service has it
		for _, p := range places {
			if forms()[p.format.Format].named == named {
				layouts = append(layouts, placedIn(p.codec, n.Namespace, p.format.Group))
			}
		}
	}
	r.codecs = codecs
	target, err := nacos.NewTarget(client, nacos.TargetOptions{Owner: metadata.OwnerMark(b.cfg.Owner), Layouts: layouts, Signer: b.signer})
	if err != nil {
		return nil, err //nolint:wrapcheck // build names the registry
	}
	r.target, r.check = target, checkNacos(n, client, target)
	return r, nil
}

// nacosOptions says how a Nacos cluster is reached and as whom.
func (b *builder) nacosOptions(name string, n *config.Nacos) nacos.Options {
	o := nacos.Options{
		Servers: n.Servers, Namespace: n.Namespace, Username: n.Username, MaxReceive: int(n.Limits.MaxReceive),
		Log: b.log.With("component", "nacos", "peer", name),
	}
	if n.PasswordFile != "" {
		o.Password = func() (string, error) {
			s, err := config.ReadSecret(n.PasswordFile)
			return s.Reveal(), err
		}
	}
	if n.TLS != nil {
		o.TLS = tlsfile.Files{CA: n.TLS.CAFile, Cert: n.TLS.CertFile, Key: n.TLS.KeyFile, ServerName: n.TLS.ServerName}.Config
	}
	return o
}

func nacosState(s nacos.State) admin.TargetState {
	t := admin.TargetState{Connected: s.Connected, Server: s.Server, Since: s.Since, Reconnects: s.Again, LastError: s.LastError}
	if l := s.Login; l.Username != "" {
		t.Login = &admin.Login{Username: l.Username, Expires: l.Expires}
		if l.Err != nil {
			t.Login.LastError = l.Err.Error()
		}
	}
	return t
}
