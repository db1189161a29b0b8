package naming

import (
	"cmp"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// HostAddress is where the mesh offers a service: the host and port of a
// cluster, not of an endpoint. It is comparable; equal addresses are ==.
type HostAddress struct {
	Host string // a host name in lower case without a trailing dot, or an IP address without brackets
	Port uint16
}

// String returns fqdn:port, ip:port or [v6]:port.
func (a HostAddress) String() string {
	return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
}

// Compare orders addresses by host, then port.
func (a HostAddress) Compare(o HostAddress) int {
	return cmp.Or(cmp.Compare(a.Host, o.Host), cmp.Compare(a.Port, o.Port))
}

// ParseHostAddress reads fqdn:port, ip:port or [v6]:port. Names are lowered
// and lose a trailing dot, IP addresses take their shortest form, an IPv4
// address in IPv6 becomes IPv4; IPv6 zones are refused. What String writes is
// read back as the same. The error is an *Error.
func ParseHostAddress(s string) (HostAddress, error) {
	if len(s) > maxHost+len("[]:65535") {
		return HostAddress{}, bad(kindAddress, s, "too long")
	}
	at := strings.LastIndexByte(s, ':')
	if at < 0 {
		return HostAddress{}, bad(kindAddress, s, "want host:port, the port is missing")
	}
	port, ok := parsePort(s[at+1:])
	if !ok {
		return HostAddress{}, bad(kindAddress, s, "the port is not a number from 1 to 65535")
	}
	host, reason := addressHost(s[:at])
	if reason != "" {
		return HostAddress{}, bad(kindAddress, s, reason)
	}
	return HostAddress{Host: host, Port: port}, nil
}

// addressHost returns the host of an address in its one form, or what is
// wrong with it.
func addressHost(s string) (host, reason string) {
	inner, bracketed := strings.CutPrefix(s, "[")
	if bracketed {
		inner, bracketed = strings.CutSuffix(inner, "]")
		if !bracketed || !strings.Contains(inner, ":") {
			return "", "brackets are for IPv6 addresses"
		}
	} else if strings.Contains(s, ":") {
		return "", "an IPv6 address needs brackets"
	}
	if ip, err := netip.ParseAddr(inner); err == nil {
		if ip.Zone() != "" {
			return "", "an IPv6 zone means nothing on another machine"
		}
		return ip.Unmap().String(), ""
	}
	if bracketed {
		return "", "not an IPv6 address"
	}
	host = canonicalHost(s)
	return host, hostProblem(host)
}

// parsePort reads a port as istio and Dubbo write it: digits, no sign, no
// leading zero.
func parsePort(s string) (uint16, bool) {
	port, err := strconv.ParseUint(s, 10, 16)
	if err != nil || s[0] == '0' || s[0] == '+' {
		return 0, false
	}
	return uint16(port), true
}
