package naming

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The maximum lengths in DNS, in bytes.
const (
	maxHost  = 253
	maxLabel = 63
)

// KubernetesHost is the host name of a Kubernetes service,
// `name.namespace.svc.domain`.
type KubernetesHost struct {
	Name      string
	Namespace string
	Domain    string // of the cluster; cluster.local in most clusters, but not in all
}

// String returns the fully qualified name.
func (h KubernetesHost) String() string { return h.Name + "." + h.Namespace + ".svc." + h.Domain }

// ParseKubernetesHost splits the host of a Kubernetes service in any cluster domain. It
// fails for hosts of other forms. The error is an *Error.
func ParseKubernetesHost(host string) (KubernetesHost, error) {
	canonical := canonicalHost(host)
	if reason := hostProblem(canonical); reason != "" {
		return KubernetesHost{}, bad(kindHost, host, reason)
	}
	parts := strings.SplitN(canonical, ".", 4)
	if len(parts) < 4 || parts[2] != "svc" {
		return KubernetesHost{}, bad(kindHost, host, "not of the form name.namespace.svc.domain")
	}
	return KubernetesHost{Name: parts[0], Namespace: parts[1], Domain: parts[3]}, nil
}

// canonicalHost returns a host in lower case without a trailing dot. DNS, Envoy and istiod
// ignore the case and the dot.
func canonicalHost(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

// hostProblem returns why a host name is invalid, or an empty text if it is valid. The
// rules are those of Istio for hosts of a ServiceEntry, without wildcards.
func hostProblem(host string) string {
	switch {
	case host == "":
		return "the host is empty"
	case len(host) > maxHost:
		return "the host is longer than 253 bytes"
	}
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if !dnsLabel(label) {
			return "the host is not a DNS name"
		}
		last = label
	}
	if strings.Trim(last, "0123456789") == "" {
		return "the host is neither an IP address nor a DNS name"
	}
	return ""
}

// dnsLabel reports whether s is a DNS label as Istio defines it: up to 63 letters, digits
// and inner hyphens.
func dnsLabel(s string) bool {
	return s != "" && len(s) <= maxLabel && only(s, "-") && alphanumeric(s[0]) && alphanumeric(s[len(s)-1])
}

// HostAddress is the host and port of a mesh service, not of an endpoint. Equal addresses
// are ==.
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

// ParseHostAddress parses fqdn:port, ip:port or [v6]:port. In the result names are
// canonical, IP addresses are in their shortest form, and IPv4 addresses in IPv6 are
// IPv4. It refuses IPv6 zones. It parses the results of String. The error is an *Error.
func ParseHostAddress(s string) (HostAddress, error) {
	if len(s) > maxHost+len("[]:65535") {
		return HostAddress{}, bad(kindAddress, s, "too long")
	}
	at := strings.LastIndexByte(s, ':')
	if at < 0 {
		return HostAddress{}, bad(kindAddress, s, "expected host:port, the port is missing")
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

// addressHost returns the canonical host of an address, or why the host is invalid.
func addressHost(s string) (host, reason string) {
	inner, bracketed := strings.CutPrefix(s, "[")
	if bracketed {
		inner, bracketed = strings.CutSuffix(inner, "]")
		if !bracketed || !strings.Contains(inner, ":") {
			return "", "only an IPv6 address may be in brackets"
		}
	} else if strings.Contains(s, ":") {
		return "", "an IPv6 address must be in brackets"
	}
	if ip, err := netip.ParseAddr(inner); err == nil {
		if ip.Zone() != "" {
			return "", "an IPv6 zone is only valid on its own machine"
		}
		return ip.Unmap().String(), ""
	}
	if bracketed {
		return "", "not an IPv6 address"
	}
	host = canonicalHost(s)
	return host, hostProblem(host)
}

// parsePort parses a port as Istio and Dubbo write it: without a sign or a leading zero.
func parsePort(s string) (uint16, bool) {
	port, err := strconv.ParseUint(s, 10, 16)
	if err != nil || s[0] == '0' || s[0] == '+' {
		return 0, false
	}
	return uint16(port), true
}

// maxPattern exceeds the length of every name.
const maxPattern = 512

// Pattern matches hosts and names: a text with at most one star, which matches one or
// more characters including dots, such as *.shop.svc.cluster.local, order-*.svc or *.
// The zero Pattern matches nothing. It is comparable.
type Pattern struct {
	text string
}

// ParsePattern parses a pattern. The error is an *Error.
func ParsePattern(s string) (Pattern, error) {
	switch {
	case s == "":
		return Pattern{}, bad(kindPattern, s, "it is empty and would match nothing")
	case len(s) > maxPattern:
		return Pattern{}, bad(kindPattern, s, "longer than 512 bytes")
	case strings.Count(s, "*") > 1:
		return Pattern{}, bad(kindPattern, s, "it has more than one star")
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || strings.IndexByte("/\\?[]{}", s[i]) >= 0 {
			return Pattern{}, bad(kindPattern, s, "it has a character that no host or service name has")
		}
	}
	return Pattern{text: s}, nil
}

// String returns the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Match reports whether the pattern matches a name. As in registries, case matters.
func (p Pattern) Match(name string) bool {
	_, ok := capture(p.text, name)
	return ok
}

// CaptureName is like Match. It also returns the text of the star, which is empty if the
// pattern has no star.
func (p Pattern) CaptureName(name string) (string, bool) { return capture(p.text, name) }

// MatchHost reports whether the pattern matches a host. Case does not matter.
func (p Pattern) MatchHost(host string) bool {
	_, ok := p.Capture(host)
	return ok
}

// Capture is like MatchHost. It also returns the text of the star in lower case, which is
// empty if the pattern has no star.
func (p Pattern) Capture(host string) (string, bool) {
	return capture(strings.ToLower(p.text), canonicalHost(host))
}

func capture(pattern, s string) (string, bool) {
	prefix, suffix, star := strings.Cut(pattern, "*")
	if !star {
		return "", pattern != "" && pattern == s
	}
	if len(s) <= len(prefix)+len(suffix) || !strings.HasPrefix(s, prefix) || !strings.HasSuffix(s, suffix) {
		return "", false
	}
	return s[len(prefix) : len(s)-len(suffix)], true
}

// Reach says which addresses may be offered to consumers on other machines. The zero
// value refuses loopback, link-local and multicast addresses and metadata services of
// clouds. On another machine these addresses mean something else.
type Reach struct {
	Allow []netip.Prefix // exceptions
	Only  []netip.Prefix // if not empty, all other IP addresses are refused
}

// Refuse returns why a host, which is a name or an IP address without brackets, must not
// be offered. It is empty if the host may be offered.
func (r Reach) Refuse(host string) string {
	ip, err := netip.ParseAddr(host)
	ip = ip.Unmap().WithZone("") // the canonical form
	switch {
	case err != nil:
		return refusedName(host)
	case ip.IsUnspecified():
		return "unspecified address"
	case slices.ContainsFunc(r.Allow, func(p netip.Prefix) bool { return p.Contains(ip) }):
		return ""
	case len(r.Only) > 0 && !slices.ContainsFunc(r.Only, func(p netip.Prefix) bool { return p.Contains(ip) }):
		return "outside the allowed networks"
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

// isMetadata reports whether an address is that of the metadata service of a cloud: of
// AWS, Azure, Google and others in IPv4 or IPv6, or of Alibaba.
func isMetadata(ip netip.Addr) bool {
	switch ip {
	case netip.AddrFrom4([4]byte{169, 254, 169, 254}), netip.AddrFrom4([4]byte{100, 100, 100, 200}),
		netip.AddrFrom16([16]byte{0xfd, 0x00, 0x0e, 0xc2, 14: 0x02, 15: 0x54}):
		return true
	}
	return false
}

func refusedName(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	last := host[strings.LastIndexByte(host, '.')+1:]
	switch {
	case last != "" && strings.Trim(last, "0123456789") == "", strings.HasPrefix(last, "0x"):
		return "number that some resolvers parse as an IP address"
	case host == "localhost" || strings.HasSuffix(host, ".localhost"):
		return "name of the caller's own machine"
	case host == "metadata.google.internal":
		return "metadata service of a cloud"
	}
	return ""
}

// The directions of a cluster.
const (
	Outbound = "outbound"
	Inbound  = "inbound"
)

// maxCluster exceeds the length of every cluster name of istiod.
const maxCluster = 512

// The separators of the two forms of a cluster name, Istio's BuildSubsetKey and
// BuildDNSSrvSubsetKey.
const (
	pipe = "|"
	srv  = "_."
)

// Cluster is the name of a cluster of istiod.
type Cluster struct {
	Direction string // Outbound or Inbound
	Port      uint16 // of the service, not of its endpoints
	Subset    string // of a DestinationRule; empty for all endpoints
	Host      string // as istiod wrote it; may begin with "*."; empty for Inbound
}

// String returns `direction|port|subset|host`.
func (c Cluster) String() string { return c.join(pipe) }

// SNI returns the form for gateways, direction_.port_.subset_.host.
func (c Cluster) SNI() string { return c.join(srv) }

func (c Cluster) join(sep string) string {
	return c.Direction + sep + strconv.Itoa(int(c.Port)) + sep + c.Subset + sep + c.Host
}

// HostAddress returns the address of the service. ParseHostAddress can parse it unless the
// host is a wildcard or empty.
func (c Cluster) HostAddress() HostAddress {
	host, reason := addressHost(c.Host)
	if reason != "" {
		host = canonicalHost(c.Host)
	}
	return HostAddress{Host: host, Port: c.Port}
}

// ParseCluster parses both forms of a name. It fails for clusters that belong to no
// service, such as BlackHoleCluster, PassthroughCluster and agent. The error is an
// *Error.
func ParseCluster(s string) (Cluster, error) {
	if len(s) > maxCluster {
		return Cluster{}, bad(kindCluster, s, "longer than 512 bytes")
	}
	sep := pipe
	if strings.HasPrefix(s, Outbound+srv) || strings.HasPrefix(s, Inbound+srv) {
		sep = srv
	}
	parts := strings.Split(s, sep)
	if len(parts) != 4 {
		return Cluster{}, bad(kindCluster, s, "expected direction|port|subset|host")
	}
	port, ok := parsePort(parts[1])
	c := Cluster{Direction: parts[0], Port: port, Subset: parts[2], Host: parts[3]}
	switch {
	case c.Direction != Outbound && c.Direction != Inbound:
		return Cluster{}, bad(kindCluster, s, "the direction is neither outbound nor inbound")
	case !ok:
		return Cluster{}, bad(kindCluster, s, "the port is not a number from 1 to 65535")
	case c.Subset != "" && !dnsLabel(c.Subset):
		return Cluster{}, bad(kindCluster, s, "the subset is not a DNS label")
	}
	if reason := c.hostProblem(); reason != "" {
		return Cluster{}, bad(kindCluster, s, reason)
	}
	return c, nil
}

// hostProblem returns why the host is invalid, or an empty text if it is valid. Like a
// ServiceEntry it accepts names, IP addresses with or without brackets, and a leading
// wildcard. Inbound clusters have no host.
func (c Cluster) hostProblem() string {
	if c.Host == "" && c.Direction == Inbound {
		return ""
	}
	if host, wild := strings.CutPrefix(c.Host, "*."); wild {
		return hostProblem(canonicalHost(host))
	}
	_, reason := addressHost(c.Host)
	return reason
}
