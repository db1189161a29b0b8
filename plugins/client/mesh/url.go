package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	gxnet "github.com/dubbogo/gost/net"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/plugins/client"
	"github.com/xds-bridge/xds-bridge/plugins/internal/seam"
	"github.com/xds-bridge/xds-bridge/registry/mesh/ads"
)

// Kind lets client.Open open URLs of the schemes mesh and mesh+tls.
func Kind() client.Kind { return client.NewKind(seam.Key{}, "mesh", open) }

func open(u *client.URL) (client.Backend, error) {
	host, _ := os.Hostname()
	ip, _ := gxnet.GetLocalIP()
	o := Options{
		Address:     u.Servers,
		Credentials: ads.Credentials{TokenFile: u.One("token"), Insecure: u.Flag("insecure")},
		Identity: ads.Identity{
			Name:      cmp.Or(u.One("name"), os.Getenv("POD_NAME"), host),
			Namespace: cmp.Or(u.One("namespace"), os.Getenv("POD_NAMESPACE")),
			IP:        cmp.Or(u.One("ip"), os.Getenv("POD_IP"), ip), Domain: u.One("domain"), Cluster: u.One("cluster"),
		},
		DebugAddresses: u.Many("debug"), Interval: u.Duration("interval"), Log: u.Log,
	}
	if u.Path != "" {
		u.Reject("path", errors.New("must be empty for a mesh"))
	}
	if o.Identity.Namespace == "" {
		u.Reject("namespace", errors.New("required; set it, or $POD_NAMESPACE"))
	}
	for _, at := range o.DebugAddresses {
		if host, port, err := net.SplitHostPort(at); err != nil || host == "" || port == "" {
			u.Reject("debug", fmt.Errorf("%s: must be host:port", naming.Quote(at)))
		}
	}
	if u.TLS != nil {
		o.Credentials.TLS = &ads.TLS{CAFile: u.TLS.CA, ServerName: u.TLS.ServerName, CertFile: u.TLS.Cert, KeyFile: u.TLS.Key}
	}
	if at := u.One("host"); at != "" {
		var err error
		o.Host, err = naming.ParseHostAddress(at)
		u.Reject("host", err)
	}
	for _, text := range u.Many("allow") {
		p, err := netip.ParsePrefix(text)
		u.Reject("allow", err)
		o.Allow = append(o.Allow, p)
	}
	if err := u.Done(); err != nil {
		return client.Backend{}, err
	}
	return New(o)
}
