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

// exportTo is the annotation of a Service with the namespaces to which it is exported.
const exportTo = "networking.istio.io/exportTo"

const (
	labelTLSMode  = "security.istio.io/tlsMode"
	tlsModeMutual = "istio"
	defaultWeight = 1 // of an endpoint without a weight, as in istiod
)

// Reasons why ports and endpoints are left out.
const (
	reasonExportTo = "exportTo limits it to some namespaces; write `*` to export it"
	reasonAlias    = "is of type ExternalName: an alias of another host, without endpoints of its own"
	reasonUDP      = "is a port of UDP or SCTP, which the proxies of a mesh do not serve"
	reasonNoPod    = "its Pod is unknown"
	reasonNetwork  = "is in another network, behind its gateway"
	reasonSocket   = "unix socket, which no other machine can call"
)

// isVisible reports whether exportTo lists all namespaces.
func isVisible(exportTo []string) bool { return len(exportTo) == 0 || slices.Contains(exportTo, "*") }

// deriveService derives a Service.
func (d *derivation) deriveService(s *core.Service) {
	host := s.Name + "." + s.Namespace + ".svc." + d.rules.Domain
	common := offer{
		namespace: s.Namespace, application: s.Name, created: s.CreationTimestamp.Unix(), skipReason: skipService(s),
	}
	endpointSlices := d.slicesOf(s)
	var ports []hostPort
	for _, p := range s.Spec.Ports {
		o := common
		o.id = naming.Cluster{Direction: naming.Outbound, Port: uint16(p.Port), Host: host}
		switch {
		case o.skipReason != "":
		case p.Protocol != "" && p.Protocol != core.ProtocolTCP:
			o.skipReason = reasonUDP
		default:
			ports = append(ports, hostPort{number: o.id.Port, name: p.Name, target: p.TargetPort.String()})
			o.endpoints = d.endpointsOfService(s, p, endpointSlices)
			o.sortEndpoints()
		}
		if old, twice := d.offers[o.id.String()]; !twice || old.skipReason != "" {
			d.offers[o.id.String()] = &o
		}
	}
	if len(ports) == 0 {
		return
	}
	for _, slice := range endpointSlices {
		for i := range slice.Endpoints {
			if pod, ok := podOf(&slice.Endpoints[i], s.Namespace); ok {
				d.dependOnPod(pod, slice.Endpoints[i].Addresses...)
			}
		}
	}
	d.claimKeys(&s.ObjectMeta, d.workloadsOf(s), map[string][]hostPort{host: ports})
}

// skipService returns the reason why a Service is left out, or "" if it is not.
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

// endpointsOfService returns the endpoints of a port: those in EndpointSlices, and the
// WorkloadEntries that the Service selects.
func (d *derivation) endpointsOfService(
	s *core.Service, p core.ServicePort, endpointSlices []*discovery.EndpointSlice,
) []mesh.EndpointSpec {
	var all []mesh.EndpointSpec
	protocol := protocolOf(deref(p.AppProtocol), p.Name)
	for _, slice := range endpointSlices {
		number := portOf(slice, p)
		if number == 0 {
			continue
		}
		for i := range slice.Endpoints {
			e := d.endpointWithoutAddress(&slice.Endpoints[i], s.Namespace)
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

// targetOf returns the port of a WorkloadEntry to which a port of a Service leads, or 0 if
// there is none.
func targetOf(e *networking.WorkloadEntry, p core.ServicePort) uint32 {
	if p.TargetPort.Type == intstr.String {
		return e.GetPorts()[p.TargetPort.StrVal]
	}
	return cmp.Or(e.GetPorts()[p.Name], uint32(max(p.TargetPort.IntVal, 0)), uint32(p.Port))
}

// deref returns the string behind a pointer, which is empty for nil.
func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// portOf returns the port of an EndpointSlice to which a port of the Service leads, or 0 if
// there is none.
func portOf(slice *discovery.EndpointSlice, p core.ServicePort) uint32 {
	for _, q := range slice.Ports {
		if deref(q.Name) == p.Name && q.Port != nil && (q.Protocol == nil || *q.Protocol == core.ProtocolTCP) {
			return uint32(*q.Port)
		}
	}
	return 0
}

// podOf returns the name of the Pod behind an endpoint, and whether there is one.
func podOf(e *discovery.Endpoint, namespace string) (objectName, bool) {
	if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
		return objectName{}, false
	}
	return objectName{Namespace: namespace, Name: e.TargetRef.Name}, true
}

// endpointWithoutAddress returns an endpoint of an EndpointSlice without address, port and
// protocol.
func (d *derivation) endpointWithoutAddress(e *discovery.Endpoint, namespace string) mesh.EndpointSpec {
	out := mesh.EndpointSpec{
		Health: endpointHealth(e.Conditions), Weight: defaultWeight, Zone: locality("", deref(e.Zone), ""),
	}
	if zone, known := d.zoneOfNode(deref(e.NodeName)); known {
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
	case d.rules.Pods: // as in istiod, which waits for the Pod
		out.Skip = reasonNoPod
	}
	return out
}

// endpointHealth follows kube-proxy and istiod: an endpoint that is not ready gets no
// requests. For a Service with publishNotReadyAddresses, Kubernetes reports all as ready.
func endpointHealth(c discovery.EndpointConditions) registry.Health {
	switch {
	case c.Ready == nil || *c.Ready:
		return registry.Healthy
	case c.Terminating != nil && *c.Terminating:
		return registry.Draining
	}
	return registry.Unhealthy
}

// protocolOf returns the RPC protocol of a port, or "" if the format decides. Istio reads
// `appProtocol` before the prefix of the port's name, but does not know Dubbo: a port may
// be called `tcp-dubbo` or `grpc-tri`. Therefore each part of both texts is compared.
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

// Labels with localities, the same as in istiod.
const (
	labelLocality = "istio-locality"
	labelRegion   = core.LabelTopologyRegion
	labelZone     = core.LabelTopologyZone
	labelSubzone  = "topology.istio.io/subzone"
)

// locality returns region/zone/subzone without empty parts at the end, the form of
// mesh.EndpointSpec.
func locality(region, zone, subzone string) string {
	return strings.TrimRight(region+"/"+zone+"/"+subzone, "/")
}

// localityOf returns the locality in a label, which may have dots instead of slashes.
func localityOf(label string) string {
	if !strings.Contains(label, "/") {
		label = strings.ReplaceAll(label, ".", "/")
	}
	return strings.TrimRight(label, "/")
}
