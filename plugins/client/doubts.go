package client

import (
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// doubts are the endpoints that were known when the registry went away and that
// it has not told of since it is back. One that was restarted fills up as
// providers come back one by one: what is not there yet is not gone. An endpoint
// that is told of once more is in doubt no longer, and goes when it is told to.
type doubts struct {
	time      time.Duration
	endpoints map[registry.Name]*registry.Service
	end       *time.Timer
}

// all doubts everything there is, besides what already is in doubt.
func (d *doubts) all(services map[registry.Name]*registry.Service) {
	for name, s := range services {
		d.endpoints[name] = d.with(name, s)
	}
}

// confirm drops what a service is told to have.
func (d *doubts) confirm(name registry.Name, now *registry.Service) {
	s := d.endpoints[name]
	if s == nil || now == nil {
		return
	}
	left := *s
	left.Endpoints = slices.DeleteFunc(slices.Clone(s.Endpoints), func(e registry.Endpoint) bool {
		return slices.ContainsFunc(now.Endpoints, func(o registry.Endpoint) bool { return o.Address() == e.Address() })
	})
	if len(left.Endpoints) == 0 {
		delete(d.endpoints, name)
		return
	}
	d.endpoints[name] = &left
}

// start has what is left given up after the time.
func (d *doubts) start(settled func()) {
	if d.end != nil {
		d.end.Stop()
	}
	if len(d.endpoints) > 0 {
		d.end = time.AfterFunc(d.time, settled)
	}
}

// names adds the services in doubt that answer a query.
func (d *doubts) names(q Query, to map[registry.Name]struct{}) {
	if len(d.endpoints) == 0 {
		return
	}
	for _, one := range q.each() {
		for name, s := range d.endpoints {
			if slices.Contains(queries(s), one) {
				to[name] = struct{}{}
			}
		}
	}
}

// with returns a service together with what is in doubt of it.
func (d *doubts) with(name registry.Name, now *registry.Service) *registry.Service {
	s := d.endpoints[name]
	switch {
	case s == nil:
		return now
	case now == nil:
		return s
	}
	both := *now
	both.Endpoints = slices.Concat(now.Endpoints, s.Endpoints)
	slices.SortFunc(both.Endpoints, registry.Endpoint.Compare)
	return &both
}
