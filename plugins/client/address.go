package client

import (
	"fmt"
	"net"
	"net/netip"

	gxnet "github.com/dubbogo/gost/net"
)

// Reachable returns the host and port under which others reach a listener. For a listener on
// all addresses the host is an address of this machine.
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
			return "", 0, fmt.Errorf("address %q: find the address of this machine: %w", address, err)
		}
	case err != nil:
		return "", 0, fmt.Errorf("address %q: not an IP address", address)
	}
	return h, a.Port(), nil
}
