package client

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	gxnet "github.com/dubbogo/gost/net"

	"github.com/xds-bridge/xds-bridge/naming"
)

// Reachable returns the host and port under which others reach a listener: its
// own, or where it listens on all addresses that of this machine.
func Reachable(address string) (host string, port uint16, err error) {
	h, p, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: %w", address, err)
	}
	a, err := netip.ParseAddrPort(net.JoinHostPort("::", p))
	if err != nil {
		return "", 0, fmt.Errorf("address %q: %w", address, err)
	}
	ip, err := netip.ParseAddr(h)
	switch {
	case h == "" || err == nil && ip.IsUnspecified():
		if h, err = gxnet.GetLocalIP(); err != nil {
			return "", 0, fmt.Errorf("address %q: the address of this machine: %w", address, err)
		}
	case err != nil:
		return "", 0, fmt.Errorf("address %q: not an IP address", address)
	}
	return h, a.Port(), nil
}

// Named asks for what a consumer calls by a name: the providers of an interface of
// that name, the instances of an application or, by host:port, a host of the mesh.
func Named(name string) Query {
	all := []Query{ByInterface(name, "", ""), ByApplication(name)}
	if a, err := naming.ParseHostAddress(name); err == nil {
		all = append(all, ByHost(a))
	}
	return Any(all...)
}

// ParseQuery asks for what a text names: a service key
// (providers:api.Greeter:1.0.0:group), a host address of the mesh
// (greeter.shop.svc.cluster.local:20000), or a plain name as Named accepts it.
func ParseQuery(text string) (Query, error) {
	if strings.HasPrefix(text, naming.Providers+":") {
		key, err := naming.ParseServiceKey(text)
		return ByKey(key), err
	}
	if strings.Contains(text, ":") {
		a, err := naming.ParseHostAddress(text)
		return ByHost(a), err
	}
	return Named(text), nil
}
