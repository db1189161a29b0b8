package client

import (
	"slices"

	"github.com/xds-bridge/xds-bridge/registry"
)

// provision is instances as one service.
type provision struct {
	*registry.Service
	of []Instance
}

// provisionsOf returns instances as services. The name of each is that of its first
// instance, so that several of one application are distinguished. Those of one process
// are one service where the format holds them in one entry.
func (p *targetPublisher) provisionsOf(instances []Instance) []*provision {
	byProcess := make(map[[2]string]*provision)
	all := make([]*provision, 0, len(instances))
	for _, i := range slices.SortedFunc(slices.Values(instances), compareInstances) {
		process, e := [2]string{i.application(), i.Process}, i.endpoint()
		if one := byProcess[process]; one != nil && p.joined && i.Process != "" {
			one.of, one.Interfaces = append(one.of, i), append(one.Interfaces, i.interfaces()...)
			e.Instance = one.Endpoints[0].Address()
			one.Endpoints[0].Instance = e.Instance
			one.Endpoints = append(one.Endpoints, e)
			continue
		}
		one := &provision{of: []Instance{i}, Service: &registry.Service{
			Name: registry.Name(i.name()), Application: i.application(), Protocol: i.Protocol,
			Interfaces: i.interfaces(), Endpoints: []registry.Endpoint{e},
		}}
		byProcess[process] = one
		all = append(all, one)
	}
	for _, one := range all {
		slices.SortFunc(one.Endpoints, registry.Endpoint.Compare)
	}
	return all
}
