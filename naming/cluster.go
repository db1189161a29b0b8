package naming

import (
	"strconv"
	"strings"
)

// The directions of a cluster.
const (
	Outbound = "outbound"
	Inbound  = "inbound"
)

// maxCluster is more than the longest name of istiod has.
const maxCluster = 512

// The separators of the two forms of a cluster name, istio's BuildSubsetKey
// and BuildDNSSrvSubsetKey.
const (
	pipe = "|"
	srv  = "_."
)

// Cluster is the name of a cluster of istiod.
type Cluster struct {
	Direction string // Outbound or Inbound
	Port      uint16 // of the service, not of its endpoints
	Subset    string // of a DestinationRule; empty: all endpoints
	Host      string // as istiod wrote it; may begin with "*."; empty for Inbound
}

// String returns `direction|port|subset|host`.
func (c Cluster) String() string { return c.join(pipe) }

// SNI returns the form for gateways, direction_.port_.subset_.host.
func (c Cluster) SNI() string { return c.join(srv) }

func (c Cluster) join(sep string) string {
	return c.Direction + sep + strconv.Itoa(int(c.Port)) + sep + c.Subset + sep + c.Host
}

// HostAddress returns the address of the service. ParseHostAddress reads it unless the
// host is a wildcard or empty.
func (c Cluster) HostAddress() HostAddress {
	host, reason := addressHost(c.Host)
	if reason != "" {
		host = canonicalHost(c.Host)
	}
	return HostAddress{Host: host, Port: c.Port}
}

// ParseCluster reads both forms of a name. Clusters of no service, such as
// BlackHoleCluster, PassthroughCluster and agent, are errors. The error is an *Error.
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
		return Cluster{}, bad(kindCluster, s, "want direction|port|subset|host")
	}
	port, ok := parsePort(parts[1])
	c := Cluster{Direction: parts[0], Port: port, Subset: parts[2], Host: parts[3]}
	switch {
	case c.Direction != Outbound && c.Direction != Inbound:
		return Cluster{}, bad(kindCluster, s, "the direction is neither outbound nor inbound")
	case !ok:
		return Cluster{}, bad(kindCluster, s, "the port is not a number from 1 to 65535")
	case c.Subset != "" && !dnsLabel(c.Subset):
		return Cluster{}, bad(kindCluster, s, "the subset is no DNS label")
	}
	if reason := c.hostProblem(); reason != "" {
		return Cluster{}, bad(kindCluster, s, reason)
	}
	return c, nil
}

// hostProblem accepts what a ServiceEntry accepts: names, IP addresses with or without
// brackets, and a leading wildcard. Inbound clusters have no host.
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
