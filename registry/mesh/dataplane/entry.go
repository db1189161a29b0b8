package dataplane

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	mcpv1 "istio.io/api/mcp/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/xds-bridge/xds-bridge/naming"
)

// Entry is one ServiceEntry as it is served to istiod.
type Entry struct {
	Name string // namespace/name
	Spec *networking.ServiceEntry
}

// Decode reads an entry from the form that istiod gets.
func Decode(wire *anypb.Any) (Entry, error) {
	var (
		outer mcpv1.Resource
		spec  networking.ServiceEntry
	)
	if err := proto.Unmarshal(wire.GetValue(), &outer); err != nil {
		return Entry{}, fmt.Errorf("resource: %w", err)
	}
	e := Entry{Name: outer.GetMetadata().GetName(), Spec: &spec}
	if err := proto.Unmarshal(outer.GetBody().GetValue(), &spec); err != nil {
		return e, fmt.Errorf("%s: %w", e.Name, err)
	}
	return e, nil
}

// head returns the entry without its endpoints, which are nearly all of it.
func (e Entry) head() Entry {
	return Entry{e.Name, &networking.ServiceEntry{
		Hosts: e.Spec.GetHosts(), Addresses: e.Spec.GetAddresses(), Ports: e.Spec.GetPorts(), ExportTo: e.Spec.GetExportTo(),
	}}
}

func (e Entry) namespace() string {
	namespace, _, _ := strings.Cut(e.Name, "/")
	return namespace
}

// exportTo returns the namespaces that the entry is visible in; nil: in all.
func (e Entry) exportTo() []string {
	to := slices.Clone(e.Spec.GetExportTo())
	if len(to) == 0 || slices.Contains(to, "*") {
		return nil
	}
	for i, namespace := range to {
		if namespace == "." {
			to[i] = e.namespace()
		}
	}
	return to
}

// isVisible reports whether what is exported to some namespaces is visible in
// one.
func isVisible(exportTo []string, namespace string) bool {
	return exportTo == nil || slices.Contains(exportTo, namespace)
}

// isLike reports whether two entries differ in their endpoints alone.
func (e Entry) isLike(o Entry) bool {
	a, b := e.Spec, o.Spec
	return e.Name == o.Name && slices.Equal(a.GetHosts(), b.GetHosts()) && slices.Equal(a.GetAddresses(), b.GetAddresses()) &&
		slices.Equal(a.GetExportTo(), b.GetExportTo()) &&
		slices.EqualFunc(a.GetPorts(), b.GetPorts(), func(p, q *networking.ServicePort) bool { return proto.Equal(p, q) })
}

// listenerName is what gRPC asks for as xds:///host:port.
func listenerName(host string, port uint32) string { return fmt.Sprintf("%s:%d", host, port) }

// clusterName is istio's name of a cluster.
func clusterName(host string, port uint32, subset string) string {
	return naming.Cluster{Direction: naming.Outbound, Port: uint16(port), Subset: subset, Host: host}.String() //nolint:gosec // of so many bits
}

// isHTTP reports whether a port speaks a protocol that is routed by host, and
// isHTTP2 whether that is HTTP/2.
func isHTTP(p *networking.ServicePort) bool {
	switch strings.ToUpper(p.GetProtocol()) {
	case "HTTP", "HTTP2", "GRPC", "GRPC-WEB":
		return true
	}
	return false
}

func isHTTP2(p *networking.ServicePort) bool {
	protocol := strings.ToUpper(p.GetProtocol())
	return protocol == "HTTP2" || protocol == "GRPC"
}
