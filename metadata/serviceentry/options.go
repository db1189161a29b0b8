// Package serviceentry encodes services of ZooKeeper and Nacos as ServiceEntries of
// Istio, and as DestinationRules for their subsets. It is pure: no I/O, no time, no
// state. istiod silently drops invalid resources that it receives over MCP. So this
// package checks all of Istio's rules.
package serviceentry

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
)

// Kind is the Group.Kind of every entry of this format.
const Kind = "service-entry"

// The labels and annotations of a resource.
const (
	LabelRegistry  = "xds-bridge/registry"
	AnnotationMark = metadata.MarkAnnotation
	AnnotationName = "xds-bridge/name" // the service's name in its registry
)

// Options tune a Codec.
type Options struct {
	Hosts     naming.MeshHosts
	Namespace string            // of the resources; it must contain nothing else
	Mark      metadata.Mark     // its path is replaced by that of each service
	VIPs      netip.Prefix      // the range of the services' addresses; the zero value for none
	ExportTo  []string          // namespaces; empty means all
	External  bool              // MESH_EXTERNAL instead of MESH_INTERNAL
	Ports     map[string]uint16 // of services, by the protocol of the registry; they override the defaults
	Protocol  string            // the default protocol of services; empty is tcp
	IPOnly    bool              // leave out endpoints with host names

	// SubsetLabel is the label of endpoints by whose values hosts have subsets. If it
	// is empty, hosts have no subsets.
	SubsetLabel string
}

// istioProtocols returns Istio's protocols by those of registries. All other protocols
// are TCP.
func istioProtocols() map[string]string {
	return map[string]string{
		"tri": "GRPC", "grpc": "GRPC", "grpc-web": "GRPC-WEB", "http": "HTTP", "rest": "HTTP", "http2": "HTTP2",
		"https": "HTTPS", "tls": "TLS", "mongo": "MONGO", "redis": "REDIS", "mysql": "MYSQL",
	}
}

// defaultPorts returns the ports of services in the mesh. They do not depend on the ports
// of endpoints, so that they never change.
func defaultPorts() map[string]uint16 {
	return map[string]uint16{
		"dubbo": 20880, "tri": 50051, "grpc": 50051, "http": 80, "rest": 80, "http2": 80, "https": 443, "tls": 443,
	}
}

// otherPort is the port of protocols without a port in Options.Ports.
const otherPort = 20880

func (o Options) defaults() (Options, error) {
	problems := []error{o.Hosts.Check()}
	if !namespaceName(o.Namespace) {
		problems = append(problems, fmt.Errorf("namespace %s is not a Kubernetes namespace", naming.Quote(o.Namespace)))
	}
	if isReservedNamespace(o.Namespace) {
		problems = append(problems, fmt.Errorf(
			"namespace %q belongs to the mesh itself; choose a separate namespace for the imported services", o.Namespace))
	}
	if o.VIPs.IsValid() && o.VIPs != o.VIPs.Masked() {
		problems = append(problems, fmt.Errorf("vips %s: did you mean %s?", o.VIPs, o.VIPs.Masked()))
	}
	if o.SubsetLabel != "" && !labelKey(o.SubsetLabel) {
		problems = append(problems, fmt.Errorf("subset label %s is not the key of a Kubernetes label",
			naming.Quote(o.SubsetLabel)))
	}
	ports := defaultPorts()
	maps.Copy(ports, o.Ports)
	for protocol, port := range ports {
		if port == 0 {
			problems = append(problems, fmt.Errorf("port of %s is 0", naming.Quote(protocol)))
		}
	}
	o.Ports = ports
	o.Protocol = cmp.Or(o.Protocol, "tcp")
	return o, errors.Join(problems...)
}

// isReservedNamespace reports whether the bridge must not write to a namespace.
func isReservedNamespace(namespace string) bool {
	return strings.HasPrefix(namespace, "kube-") || namespace == "istio-system" || namespace == "default"
}

func namespaceName(s string) bool {
	return s != "" && len(s) <= 63 && labelValue(s) && strings.ToLower(s) == s && !strings.ContainsAny(s, "._")
}
