package kube

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	core "k8s.io/api/core/v1"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
)

// workload is an endpoint of a ServiceEntry: one listed in it, or a WorkloadEntry or Pod that
// it selects.
type workload struct {
	*networking.WorkloadEntry

	instance string // namespace/name of the WorkloadEntry or Pod; empty for an endpoint listed in the ServiceEntry
	labels   map[string]string
	health   registry.Health
}

func workloadOf(w *WorkloadEntry) workload {
	return workload{WorkloadEntry: w.Spec, instance: nameOf(w).String(), health: workloadHealth(w), labels: labelsOf(w)}
}

// deriveEntry derives a ServiceEntry.
func (d *derivation) deriveEntry(s *ServiceEntry) {
	common := offer{namespace: s.Namespace, created: s.CreationTimestamp.Unix()}
	if !isVisible(s.Spec.GetExportTo()) {
		common.skipReason = reasonExportTo
	}
	workloads := d.workloadsOfEntry(s)
	ports := make(map[string][]hostPort)
	for _, host := range s.Spec.GetHosts() {
		for _, p := range s.Spec.GetPorts() {
			if p.GetNumber() == 0 || p.GetNumber() > 65535 || strings.EqualFold(p.GetProtocol(), "UDP") {
				continue
			}
			o := common
			o.id = naming.Cluster{Direction: naming.Outbound, Port: uint16(p.GetNumber()), Host: host}
			if o.skipReason == "" {
				d.setEndpoints(&o, s.Spec, p, workloads)
				target := strconv.FormatUint(uint64(p.GetTargetPort()), 10)
				ports[host] = append(ports[host], hostPort{number: o.id.Port, name: p.GetName(), target: target})
			}
			d.offers[o.id.String()] = &o
		}
	}
	d.claimKeys(&s.ObjectMeta, d.selectedWorkloads(s.Namespace, s.Spec.GetWorkloadSelector().GetLabels()), ports)
}

// workloadsOfEntry returns the endpoints of a ServiceEntry.
func (d *derivation) workloadsOfEntry(s *ServiceEntry) []workload {
	var all []workload
	selector := s.Spec.GetWorkloadSelector().GetLabels()
	if len(selector) == 0 {
		for _, e := range s.Spec.GetEndpoints() {
			all = append(all, workload{WorkloadEntry: e, labels: e.GetLabels()})
		}
		return all
	}
	for _, w := range d.selectedWorkloads(s.Namespace, selector) {
		all = append(all, workloadOf(w))
	}
	for r, p := range d.pods {
		if r.Namespace != s.Namespace || !selects(selector, p.Labels) || p.Status.PodIP == "" || hasEnded(p) {
			continue
		}
		d.dependOnPod(r, p.Status.PodIP)
		all = append(all, workload{
			WorkloadEntry: &networking.WorkloadEntry{Address: p.Status.PodIP, Locality: d.localityOfPod(p), Ports: portsOf(p)},
			instance:      r.String(), labels: p.Labels, health: podHealth(p),
		})
	}
	return all
}

// hasEnded reports whether a Pod has ended, so that another Pod may have its address.
func hasEnded(p *core.Pod) bool {
	return p.Status.Phase == core.PodSucceeded || p.Status.Phase == core.PodFailed
}

// portsOf returns the named ports of a Pod. Ports of a ServiceEntry refer to them.
func portsOf(p *core.Pod) map[string]uint32 {
	ports := make(map[string]uint32)
	for _, c := range p.Spec.Containers {
		for _, q := range c.Ports {
			if _, twice := ports[q.Name]; !twice && q.ContainerPort > 0 {
				ports[q.Name] = uint32(q.ContainerPort)
			}
		}
	}
	return ports
}

func (d *derivation) localityOfPod(p *core.Pod) string {
	if l := p.Labels[labelLocality]; l != "" {
		return localityOf(l)
	}
	zone, _ := d.zoneOfNode(p.Spec.NodeName)
	return zone
}

func podHealth(p *core.Pod) registry.Health {
	isReady := slices.ContainsFunc(p.Status.Conditions, func(c core.PodCondition) bool {
		return c.Type == core.PodReady && c.Status == core.ConditionTrue
	})
	switch {
	case p.DeletionTimestamp != nil:
		return registry.Draining
	case isReady:
		return registry.Healthy
	}
	return registry.Unhealthy
}

// setEndpoints sets the endpoints of a port of a ServiceEntry.
func (d *derivation) setEndpoints(
	o *offer, s *networking.ServiceEntry, p *networking.ServicePort, workloads []workload,
) {
	protocol := protocolOf(p.GetProtocol(), p.GetName())
	byName := s.GetResolution() == networking.ServiceEntry_DNS ||
		s.GetResolution() == networking.ServiceEntry_DNS_ROUND_ROBIN
	if !byName && s.GetResolution() != networking.ServiceEntry_STATIC {
		o.isPassthrough = true // NONE and DYNAMIC_DNS: each caller resolves the address itself
		return
	}
	if byName && len(workloads) == 0 && s.GetWorkloadSelector() == nil {
		port := cmp.Or(p.GetTargetPort(), p.GetNumber())
		o.endpoints = []mesh.EndpointSpec{{Host: o.id.Host, Port: port, Weight: defaultWeight, Protocol: protocol}}
		return
	}
	if s.GetResolution() == networking.ServiceEntry_DNS_ROUND_ROBIN { // Envoy uses only the first
		workloads = workloads[:min(len(workloads), 1)]
	}
	for _, w := range workloads {
		e := d.endpointOfWorkload(w, cmp.Or(w.GetPorts()[p.GetName()], p.GetTargetPort(), p.GetNumber()), protocol)
		if _, err := netip.ParseAddr(e.Host); err != nil && !byName && e.Skip == "" {
			continue // as in istiod, which ignores host names here
		}
		o.endpoints = append(o.endpoints, e)
	}
	o.sortEndpoints()
}

func (d *derivation) endpointOfWorkload(w workload, port uint32, protocol string) mesh.EndpointSpec {
	e := mesh.EndpointSpec{
		Host: w.GetAddress(), Port: port, Protocol: protocol, Weight: max(w.GetWeight(), defaultWeight),
		Health: w.health, Instance: w.instance, Zone: localityOf(w.GetLocality()),
		TLSMode: w.labels[labelTLSMode], Subset: lookup(w.labels, d.rules.SubsetLabel),
	}
	if e.Zone == "" {
		e.Zone = localityOf(w.labels[labelLocality])
	}
	if e.TLSMode == "" && w.GetServiceAccount() != "" {
		e.TLSMode = tlsModeMutual
	}
	switch {
	case strings.HasPrefix(e.Host, "unix:"):
		e.Skip = reasonSocket
	case w.GetNetwork() != "":
		e.Skip = reasonNetwork
	}
	return e
}
