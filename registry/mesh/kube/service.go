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

// exportTo is the annotation by which a Service says who may see it.
const exportTo = "networking.istio.io/exportTo"

const (
	labelTLSMode  = "security.istio.io/tlsMode"
	mutual        = "istio"
	defaultWeight = 1 // what istiod says of an endpoint that has none
)

// The reasons why ports and endpoints are left out.
const (
	reasonExportTo = "exportTo keeps it from all namespaces but some; write `*` to have it exported"
	reasonAlias    = "is of type ExternalName: an alias of another host, without endpoints of its own"
	reasonUDP      = "is a port of UDP or SCTP, which no proxy of a mesh serves"
	reasonNoPod    = "its Pod is not known"
	reasonNetwork  = "is in another network, behind its gateway"
)

// visible reports whether everybody may see what has an exportTo.
func visible(to []string) bool { return len(to) == 0 || slices.Contains(to, "*") }

func (w *World) deriveService(s *core.Service) derived {
	d := derived{offers: make(map[string]*offer), uses: make(map[used]struct{})}
	host := s.Name + "." + s.Namespace + ".svc." + w.rules.Domain
	common := offer{namespace: s.Namespace, application: s.Name, created: s.CreationTimestamp.Unix(), skip: skipService(s)}
	slicesOf := w.slicesOf(s)
	var ports []port
	for _, p := range s.Spec.Ports {
		o := common
		o.id = naming.Cluster{Direction: naming.Outbound, Port: uint16(p.Port), Host: host}
		switch {
		case o.skip != "":
		case p.Protocol != "" && p.Protocol != core.ProtocolTCP:
			o.skip = reasonUDP
		default:
			ports = append(ports, port{number: o.id.Port, name: p.Name, target: p.TargetPort.String()})
			w.fill(&o, &d, s, p, slicesOf)
		}
		if old, twice := d.offers[o.id.String()]; !twice || old.skip != "" {
			d.offers[o.id.String()] = &o
		}
	}
	if len(ports) > 0 {
		w.claimService(&d, s, slicesOf, map[string][]port{host: ports})
	}
	return d
}

func skipService(s *core.Service) string {
	switch {
	case s.Spec.Type == core.ServiceTypeExternalName:
		return reasonAlias
	case !visible(exported(s.Annotations[exportTo])):
		return reasonExportTo
	}
	return ""
}

func exported(annotation string) []string {
	return strings.FieldsFunc(annotation, func(r rune) bool { return r == ',' || r == ' ' })
}

// slicesOf returns the slices of a Service by name. One with addresses of both
// families has its first alone: each endpoint is there once.
func (w *World) slicesOf(s *core.Service) []*discovery.EndpointSlice {
	var out []*discovery.EndpointSlice
	for _, slice := range w.slices[refOf(s)] {
		if slice.AddressType == discovery.AddressTypeFQDN {
			continue
		}
		if f := s.Spec.IPFamilies; len(f) < 2 || string(slice.AddressType) == string(f[0]) {
			out = append(out, slice)
		}
	}
	slices.SortFunc(out, func(a, b *discovery.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// fill adds the endpoints of a port, and those of WorkloadEntries that the Service
// selects.
func (w *World) fill(o *offer, d *derived, s *core.Service, p core.ServicePort, all []*discovery.EndpointSlice) {
	protocol := protocolOf(text(p.AppProtocol), p.Name)
	for _, slice := range all {
		number := portOf(slice, p)
		if number == 0 {
			continue
		}
		for _, e := range slice.Endpoints {
			t := w.endpoint(&e, s.Namespace, d)
			t.Port, t.Protocol = number, protocol
			for _, address := range e.Addresses {
				t.Host = address
				o.endpoints = append(o.endpoints, t)
			}
		}
	}
	for _, e := range w.workloadsBehind(s) {
		number := targetOf(e.Spec, p)
		if _, err := netip.ParseAddr(e.Spec.GetAddress()); err == nil && number != 0 {
			o.endpoints = append(o.endpoints, w.told(workload{WorkloadEntry: e.Spec, name: e.Name, namespace: e.Namespace, health: e.health(), labels: e.labels()}, number, protocol))
		}
	}
	o.sort()
}

// targetOf returns the port of a WorkloadEntry that a port of a Service leads to; 0:
// it has none of the name that the Service gives.
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

// portOf returns the port of a slice's endpoints that a port of the Service leads
// to; 0: they have none.
func portOf(slice *discovery.EndpointSlice, p core.ServicePort) uint32 {
	for _, q := range slice.Ports {
		if text(q.Name) == p.Name && q.Port != nil && (q.Protocol == nil || *q.Protocol == core.ProtocolTCP) {
			return uint32(*q.Port)
		}
	}
	return 0
}

// endpoint reads one endpoint of a slice, but for address and port.
func (w *World) endpoint(e *discovery.Endpoint, namespace string, d *derived) mesh.EndpointSpec {
	t := mesh.EndpointSpec{Health: health(e.Conditions), Weight: defaultWeight, Zone: locality("", text(e.Zone), "")}
	if name := text(e.NodeName); name != "" {
		d.uses[used{ref{Name: name}}] = struct{}{}
		if n := w.nodes[name]; n != nil {
			t.Zone = zoneOf(n)
		}
	}
	r := e.TargetRef
	if r == nil || r.Kind != "Pod" {
		return t
	}
	at := ref{Namespace: namespace, Name: r.Name}
	t.Instance = at.String()
	d.uses[used{at}] = struct{}{}
	p := w.pods[at]
	switch {
	case p != nil:
		t.TLSMode, t.Subset = p.Labels[labelTLSMode], lookup(p.Labels, w.rules.SubsetLabel)
		if l := p.Labels[labelLocality]; l != "" {
			t.Zone = localityOf(l)
		}
	case w.rules.Pods: // istiod waits for it, too
		t.Skip = reasonNoPod
	}
	return t
}

// health follows kube-proxy and istiod: nobody is sent to an endpoint that is not
// ready, and a Service that publishes those all the same has them as ready.
func health(c discovery.EndpointConditions) registry.Health {
	switch {
	case c.Ready == nil || *c.Ready:
		return registry.Healthy
	case c.Terminating != nil && *c.Terminating:
		return registry.Draining
	}
	return registry.Unhealthy
}

func zoneOf(n *core.Node) string {
	return locality(n.Labels[labelRegion], n.Labels[labelZone], n.Labels[labelSubzone])
}

func sameLocality(a, b *core.Node) bool { return zoneOf(a) == zoneOf(b) }

// claimService adds the keys that a Service and its Pods carry.
func (w *World) claimService(d *derived, s *core.Service, all []*discovery.EndpointSlice, at map[string][]port) {
	o := owner{ref: refOf(s)}
	d.claim(o, o.String(), &s.ObjectMeta, w.rules.Keys, at)
	seen := make(map[ref]bool)
	for _, slice := range all {
		for _, e := range slice.Endpoints {
			if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
				continue
			}
			r := ref{Namespace: s.Namespace, Name: e.TargetRef.Name}
			if p := w.pods[r]; p != nil && !seen[r] {
				seen[r] = true
				d.claim(o, "pod "+r.String(), &p.ObjectMeta, w.rules.Keys, at)
			}
		}
	}
	for _, e := range w.workloadsBehind(s) {
		d.claim(o, "workloadentry "+refOf(e).String(), &e.ObjectMeta, w.rules.Keys, at)
	}
	d.tidy()
}

// workloadsBehind returns the WorkloadEntries that are endpoints of a Service; istiod
// has none of them behind a headless one.
func (w *World) workloadsBehind(s *core.Service) []*WorkloadEntry {
	if s.Spec.ClusterIP == core.ClusterIPNone {
		return nil
	}
	return w.selected(s.Namespace, s.Spec.Selector)
}

// selected returns the WorkloadEntries of a namespace that a selector selects, by
// name.
func (w *World) selected(namespace string, selector map[string]string) []*WorkloadEntry {
	var out []*WorkloadEntry
	if len(selector) == 0 || len(w.workloads) == 0 {
		return nil
	}
	for r, e := range w.workloads {
		if r.Namespace == namespace && e.Spec != nil && selects(selector, e.labels()) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *WorkloadEntry) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// protocolOf returns the RPC protocol that a port tells; empty where it tells
// none, and then that of the format counts. Istio reads `appProtocol` before the
// beginning of the port's name, and knows no Dubbo: with it, such a port is called
// `tcp-dubbo` or `grpc-tri`. So each word of either is looked at.
func protocolOf(application, name string) string {
	application = application[strings.LastIndexByte(application, '/')+1:]
	for _, text := range []string{application, name} {
		for word := range strings.SplitSeq(strings.ToLower(text), "-") {
			switch word {
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

// locality writes region/zone/subzone without the parts that are not told at its
// end, as the locality of xDS is written.
func locality(region, zone, subzone string) string {
	return strings.TrimRight(region+"/"+zone+"/"+subzone, "/")
}

// localityOf returns what a label says, in which dots may stand for slashes, as
// none of the latter may.
func localityOf(label string) string {
	if !strings.Contains(label, "/") {
		label = strings.ReplaceAll(label, ".", "/")
	}
	return strings.TrimRight(label, "/")
}
