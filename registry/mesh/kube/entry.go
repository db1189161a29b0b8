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

// workload is an endpoint of a ServiceEntry: one of its own, a WorkloadEntry or a
// Pod that it selects.
type workload struct {
	*networking.WorkloadEntry

	name, namespace string // empty: one of its own
	labels          map[string]string
	health          registry.Health
	left            string
}

func (w *World) deriveEntry(s *ServiceEntry) derived {
	d := derived{offers: make(map[string]*offer), uses: make(map[used]struct{})}
	common := offer{namespace: s.Namespace, created: s.CreationTimestamp.Unix()}
	if !visible(s.Spec.GetExportTo()) {
		common.skip = reasonExportTo
	}
	workloads := w.workloadsOf(s, &d)
	at := make(map[string][]port)
	for _, host := range s.Spec.GetHosts() {
		for _, p := range s.Spec.GetPorts() {
			if p.GetNumber() == 0 || p.GetNumber() > 65535 || strings.EqualFold(p.GetProtocol(), "UDP") {
				continue
			}
			o := common
			o.id = naming.Cluster{Direction: naming.Outbound, Port: uint16(p.GetNumber()), Host: host}
			if o.skip == "" {
				w.fillEntry(&o, s.Spec, p, workloads)
				at[host] = append(at[host], port{number: o.id.Port, name: p.GetName(), target: strconv.FormatUint(uint64(p.GetTargetPort()), 10)})
			}
			d.offers[o.id.String()] = &o
		}
	}
	o := owner{true, refOf(s)}
	d.claim(o, o.String(), &s.ObjectMeta, w.rules.Keys, at)
	for _, e := range w.selected(s.Namespace, s.Spec.GetWorkloadSelector().GetLabels()) {
		d.claim(o, "workloadentry "+refOf(e).String(), &e.ObjectMeta, w.rules.Keys, at)
	}
	for u := range d.uses {
		if p := w.pods[u.ref]; p != nil {
			d.claim(o, "pod "+u.String(), &p.ObjectMeta, w.rules.Keys, at)
		}
	}
	d.tidy()
	return d
}

// workloadsOf returns the endpoints of a ServiceEntry.
func (w *World) workloadsOf(s *ServiceEntry, d *derived) []workload {
	var all []workload
	selector := s.Spec.GetWorkloadSelector().GetLabels()
	if len(selector) == 0 {
		for _, e := range s.Spec.GetEndpoints() {
			all = append(all, workload{WorkloadEntry: e, labels: e.GetLabels()})
		}
		return all
	}
	for _, e := range w.selected(s.Namespace, selector) {
		all = append(all, workload{WorkloadEntry: e.Spec, name: e.Name, namespace: e.Namespace, health: e.health(), labels: e.labels()})
	}
	for r, p := range w.pods {
		if r.Namespace != s.Namespace || !selects(selector, p.Labels) || p.Status.PodIP == "" || ended(p) {
			continue
		}
		d.uses[used{r}] = struct{}{}
		all = append(all, workload{
			WorkloadEntry: &networking.WorkloadEntry{Address: p.Status.PodIP, Locality: w.localityOfPod(p, d), Ports: portsOf(p)},
			name:          p.Name, namespace: p.Namespace, labels: p.Labels, health: healthOf(p),
		})
	}
	return all
}

// ended reports whether a Pod ran to its end: its address is another's by now.
func ended(p *core.Pod) bool {
	return p.Status.Phase == core.PodSucceeded || p.Status.Phase == core.PodFailed
}

// portsOf returns the ports of a Pod that have names. A port of a ServiceEntry leads
// to the one of its name.
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

func (w *World) localityOfPod(p *core.Pod, d *derived) string {
	if l := p.Labels[labelLocality]; l != "" {
		return localityOf(l)
	}
	if p.Spec.NodeName == "" {
		return ""
	}
	d.uses[used{ref{Name: p.Spec.NodeName}}] = struct{}{}
	if n := w.nodes[p.Spec.NodeName]; n != nil {
		return zoneOf(n)
	}
	return ""
}

func healthOf(p *core.Pod) registry.Health {
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

// fillEntry adds the endpoints of a port of a host.
func (w *World) fillEntry(o *offer, s *networking.ServiceEntry, p *networking.ServicePort, workloads []workload) {
	protocol := protocolOf(p.GetProtocol(), p.GetName())
	byName := s.GetResolution() == networking.ServiceEntry_DNS || s.GetResolution() == networking.ServiceEntry_DNS_ROUND_ROBIN
	if !byName && s.GetResolution() != networking.ServiceEntry_STATIC { // NONE and DYNAMIC_DNS: each caller finds out where to go
		o.none = true
		return
	}
	if byName && len(workloads) == 0 && s.GetWorkloadSelector() == nil {
		o.endpoints = []mesh.EndpointSpec{{Host: o.id.Host, Port: cmp.Or(p.GetTargetPort(), p.GetNumber()), Weight: defaultWeight, Protocol: protocol}}
		return
	}
	if s.GetResolution() == networking.ServiceEntry_DNS_ROUND_ROBIN { // istiod's Envoy knows one alone
		workloads = workloads[:min(len(workloads), 1)]
	}
	for _, e := range workloads {
		t := w.told(e, cmp.Or(e.GetPorts()[p.GetName()], p.GetTargetPort(), p.GetNumber()), protocol)
		if _, err := netip.ParseAddr(t.Host); err != nil && !byName && t.Skip == "" {
			continue // istiod takes it for none
		}
		o.endpoints = append(o.endpoints, t)
	}
	o.sort()
}

// told reads an endpoint of a ServiceEntry.
func (w *World) told(e workload, number uint32, protocol string) mesh.EndpointSpec {
	t := mesh.EndpointSpec{
		Host: e.GetAddress(), Port: number, Protocol: protocol, Weight: max(e.GetWeight(), defaultWeight), Health: e.health,
		Zone: localityOf(e.GetLocality()), TLSMode: e.labels[labelTLSMode], Subset: lookup(e.labels, w.rules.SubsetLabel), Skip: e.left,
	}
	if t.Zone == "" {
		t.Zone = localityOf(e.labels[labelLocality])
	}
	if t.TLSMode == "" && e.GetServiceAccount() != "" {
		t.TLSMode = mutual
	}
	if e.name != "" {
		t.Instance = e.namespace + "/" + e.name
	}
	switch {
	case strings.HasPrefix(t.Host, "unix:"):
		t.Skip = "unix socket, which no other machine can call"
	case e.GetNetwork() != "":
		t.Skip = reasonNetwork
	}
	return t
}
