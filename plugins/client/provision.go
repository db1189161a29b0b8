package client

import (
	"slices"

	"github.com/xds-bridge/xds-bridge/registry"
)

// provision is one service made of instances.
type provision struct {
	*registry.Service
	instances []Instance
}

// provisionsOf returns instances as services. A service has the name of its first instance,
// so that several services of one application are distinguished. The instances of one process
// are one service if the format holds them in one entry.
func (p *targetPublisher) provisionsOf(instances []Instance) []*provision {
	byProcess := make(map[[2]string]*provision)
	all := make([]*provision, 0, len(instances))
	for _, i := range slices.SortedFunc(slices.Values(instances), compareInstances) {
		process, e := [2]string{i.application(), i.Process}, i.endpoint()
		if one := byProcess[process]; one != nil && p.joinsPorts && i.Process != "" {
			one.instances, one.Interfaces = append(one.instances, i), append(one.Interfaces, i.interfaces()...)
			e.Instance = one.Endpoints[0].Address()
			one.Endpoints[0].Instance = e.Instance
			one.Endpoints = append(one.Endpoints, e)
			continue
		}
		one := &provision{instances: []Instance{i}, Service: &registry.Service{
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
