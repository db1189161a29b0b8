package kube

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

// exportTo is the annotation of a Service that says which namespaces may see it.
const exportTo = "networking.istio.io/exportTo"

const (
	labelTLSMode  = "security.istio.io/tlsMode"
	mutual        = "istio"
	defaultWeight = 1 // istiod's for an endpoint without one
)

// The reasons why ports and endpoints are left out.
const (
	reasonExportTo = "exportTo keeps it from all namespaces but some; write `*` to have it exported"
	reasonAlias    = "is of type ExternalName: an alias of another host, without endpoints of its own"
	reasonUDP      = "is a port of UDP or SCTP, which no proxy of a mesh serves"
	reasonNoPod    = "its Pod is not known"
	reasonNetwork  = "is in another network, behind its gateway"
	reasonSocket   = "unix socket, which no other machine can call"
)

// isVisible reports whether exportTo lists all namespaces.
func isVisible(exportTo []string) bool { return len(exportTo) == 0 || slices.Contains(exportTo, "*") }

func (d *derivation) deriveService(s *core.Service) {
	host := s.Name + "." + s.Namespace + ".svc." + d.rules.Domain
	common := offer{namespace: s.Namespace, application: s.Name, created: s.CreationTimestamp.Unix(), skip: skipService(s)}
	endpointSlices := d.slicesOf(s)
	var ports []hostPort
	for _, p := range s.Spec.Ports {
		o := common
		o.id = naming.Cluster{Direction: naming.Outbound, Port: uint16(p.Port), Host: host}
		switch {
		case o.skip != "":
		case p.Protocol != "" && p.Protocol != core.ProtocolTCP:
			o.skip = reasonUDP
		default:
			ports = append(ports, hostPort{number: o.id.Port, name: p.Name, target: p.TargetPort.String()})
			o.endpoints = d.endpointsOfService(s, p, endpointSlices)
			o.sort()
		}
		if old, twice := d.offers[o.id.String()]; !twice || old.skip != "" {
			d.offers[o.id.String()] = &o
		}
	}
	if len(ports) == 0 {
		return
	}
	for _, slice := range endpointSlices {
		for i := range slice.Endpoints {
			if pod, ok := podOf(&slice.Endpoints[i], s.Namespace); ok {
				d.usePod(pod, slice.Endpoints[i].Addresses...)
			}
		}
	}
	d.claimAll(&s.ObjectMeta, d.workloadsOf(s), map[string][]hostPort{host: ports})
}

func skipService(s *core.Service) string {
	to := strings.FieldsFunc(s.Annotations[exportTo], func(r rune) bool { return r == ',' || r == ' ' })
	switch {
	case s.Spec.Type == core.ServiceTypeExternalName:
		return reasonAlias
	case !isVisible(to):
		return reasonExportTo
	}
	return ""
}

// endpointsOfService returns the endpoints of a port: those of slices, and those of
// WorkloadEntries that the Service selects.
func (d *derivation) endpointsOfService(s *core.Service, p core.ServicePort, endpointSlices []*discovery.EndpointSlice) []mesh.EndpointSpec {
	var all []mesh.EndpointSpec
	protocol := protocolOf(text(p.AppProtocol), p.Name)
	for _, slice := range endpointSlices {
		number := portOf(slice, p)
		if number == 0 {
			continue
		}
		for i := range slice.Endpoints {
			e := d.endpoint(&slice.Endpoints[i], s.Namespace)
			e.Port, e.Protocol = number, protocol
			for _, address := range slice.Endpoints[i].Addresses {
				e.Host = address
				all = append(all, e)
			}
		}
	}
	for _, w := range d.workloadsOf(s) {
		number := targetOf(w.Spec, p)
		if _, err := netip.ParseAddr(w.Spec.GetAddress()); err == nil && number != 0 {
			all = append(all, d.endpointOfWorkload(workloadOf(w), number, protocol))
		}
	}
	return all
}

// targetOf returns the port of a WorkloadEntry that a port of a Service leads to; 0:
// none.
func targetOf(e *networking.WorkloadEntry, p core.ServicePort) uint32 {
	if p.TargetPort.Type == intstr.String {
		return e.GetPorts()[p.TargetPort.StrVal]
	}
	return cmp.Or(e.GetPorts()[p.Name], uint32(max(p.TargetPort.IntVal, 0)), uint32(p.Port))
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// portOf returns the port of a slice's endpoints that a port of the Service leads to;
// 0: none.
func portOf(slice *discovery.EndpointSlice, p core.ServicePort) uint32 {
	for _, q := range slice.Ports {
		if text(q.Name) == p.Name && q.Port != nil && (q.Protocol == nil || *q.Protocol == core.ProtocolTCP) {
			return uint32(*q.Port)
		}
	}
	return 0
}

func podOf(e *discovery.Endpoint, namespace string) (objectName, bool) {
	if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
		return objectName{}, false
	}
	return objectName{Namespace: namespace, Name: e.TargetRef.Name}, true
}

// endpoint returns the endpoint of a slice without address and port.
func (d *derivation) endpoint(e *discovery.Endpoint, namespace string) mesh.EndpointSpec {
	out := mesh.EndpointSpec{Health: health(e.Conditions), Weight: defaultWeight, Zone: locality("", text(e.Zone), "")}
	if zone, known := d.zoneOfNode(text(e.NodeName)); known {
		out.Zone = zone
	}
	pod, ok := podOf(e, namespace)
	if !ok {
		return out
	}
	out.Instance = pod.String()
	p := d.pods[pod]
	switch {
	case p != nil:
		out.TLSMode, out.Subset = p.Labels[labelTLSMode], lookup(p.Labels, d.rules.SubsetLabel)
		if l := p.Labels[labelLocality]; l != "" {
			out.Zone = localityOf(l)
		}
	case d.rules.Pods: // istiod waits for it, too
		out.Skip = reasonNoPod
	}
	return out
}

// health follows kube-proxy and istiod: an endpoint that is not ready gets no
// requests. A Service that publishes those all the same has them as ready.
func health(c discovery.EndpointConditions) registry.Health {
	switch {
	case c.Ready == nil || *c.Ready:
		return registry.Healthy
	case c.Terminating != nil && *c.Terminating:
		return registry.Draining
	}
	return registry.Unhealthy
}

// protocolOf returns the RPC protocol of a port; empty: that of the format counts.
// Istio reads `appProtocol` before the prefix of the port's name, and knows no Dubbo:
// with it, such a port is called `tcp-dubbo` or `grpc-tri`. So each part of both is
// compared.
func protocolOf(application, name string) string {
	application = application[strings.LastIndexByte(application, '/')+1:]
	for _, text := range []string{application, name} {
		for part := range strings.SplitSeq(strings.ToLower(text), "-") {
			switch part {
			case "dubbo":
				return "dubbo"
			case "tri", "triple":
				return "tri"
			}
		}
	}
	return ""
}

// The labels that localities are read from; istiod reads the same.
const (
	labelLocality = "istio-locality"
	labelRegion   = core.LabelTopologyRegion
	labelZone     = core.LabelTopologyZone
	labelSubzone  = "topology.istio.io/subzone"
)

// locality writes region/zone/subzone without empty parts at the end, as the locality
// of xDS is written.
func locality(region, zone, subzone string) string {
	return strings.TrimRight(region+"/"+zone+"/"+subzone, "/")
}

// localityOf returns the locality in a label, which may have dots for slashes.
func localityOf(label string) string {
	if !strings.Contains(label, "/") {
		label = strings.ReplaceAll(label, ".", "/")
	}
	return strings.TrimRight(label, "/")
}
