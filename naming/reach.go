package naming

import (
	"net/netip"
	"slices"
	"strings"
)

// Reach says which addresses may be offered to consumers on other machines.
// The zero value refuses what means something else there: loopback,
// link-local, multicast and the metadata services of clouds.
type Reach struct {
	Allow []netip.Prefix // passes all the same
	Only  []netip.Prefix // IP addresses elsewhere are refused; empty refuses none for that
}

// Refuse returns why a host, an IP address without brackets or a name, must
// not be offered; empty if it may be.
func (r Reach) Refuse(host string) string {
	ip, err := netip.ParseAddr(host)
	ip = ip.Unmap().WithZone("") // an address is what it is, however it is written
	switch {
	case err != nil:
		return refusedName(host)
	case ip.IsUnspecified():
		return "unspecified address"
	case slices.ContainsFunc(r.Allow, func(p netip.Prefix) bool { return p.Contains(ip) }):
		return ""
	case len(r.Only) > 0 && !slices.ContainsFunc(r.Only, func(p netip.Prefix) bool { return p.Contains(ip) }):
		return "outside the networks that are allowed"
	}
	return refusedIP(ip)
}

func refusedIP(ip netip.Addr) string {
	switch {
	case ip.IsLoopback():
		return "loopback address, and bridges[].select.allow does not list it"
	case isMetadata(ip):
		return "metadata service of a cloud, and bridges[].select.allow does not list it"
	case ip.IsLinkLocalUnicast():
		return "link-local address, and bridges[].select.allow does not list it"
	case ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "multicast or broadcast address, and bridges[].select.allow does not list it"
	}
	return ""
}

// isMetadata knows the metadata services of AWS, Azure, Google and others
// (IPv4 and IPv6) and of Alibaba.
func isMetadata(ip netip.Addr) bool {
	switch ip.String() {
	case "169.254.169.254", "fd00:ec2::254", "100.100.100.200":
		return true
	}
	return false
}

func refusedName(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	last := host[strings.LastIndexByte(host, '.')+1:]
	switch {
	case last != "" && strings.Trim(last, "0123456789") == "", strings.HasPrefix(last, "0x"):
		return "number that some resolvers take for an IP address"
	case host == "localhost" || strings.HasSuffix(host, ".localhost"):
		return "name of the caller's own machine"
	case host == "metadata.google.internal":
		return "metadata service of a cloud"
	}
	return ""
}
