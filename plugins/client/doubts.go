package client

import (
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// doubts are the endpoints that were known when the registry went away, or that the
// state file had, and that it has not reported since it is back. One that was restarted fills up as
// providers come back one by one: what is not there yet is not gone. An endpoint
// that is reported once more is in doubt no longer, and goes when its time comes.
//
// Only time in which the registry is current counts. A doubt ends after the
// registry was current for the time without a break, and one that was renewed
// too often ends when the registry comes back.
type doubts struct {
	time      time.Duration
	end       *time.Timer // ready when the registry has been current for the time
	endpoints map[registry.Name]*registry.Service
	began     map[doubted]time.Duration // as current counts
	confirmed map[doubted]time.Time     // when the registry reported it last
	lost      time.Time                 // when it was current last
	current   time.Duration             // how long the registry was current, until back
	back      time.Time                 // since when it is current; zero: it is away
}

// doubted is one endpoint.
type doubted struct {
	name    registry.Name
	address string
}

// renewals is how many times as long as the time a registry may be current in
// all, never that long without a break, before a doubt ends: a registry that
// flaps would keep for ever what has left.
const renewals = 4

func newDoubts(d time.Duration) doubts {
	end := time.NewTimer(d)
	end.Stop()
	return doubts{time: d, end: end, endpoints: make(map[registry.Name]*registry.Service), began: make(map[doubted]time.Duration), confirmed: make(map[doubted]time.Time)}
}

// pause stops counting: the registry is away.
func (d *doubts) pause() {
	if !d.back.IsZero() {
		d.current += time.Since(d.back)
		d.lost = time.Now()
	}
	d.back = time.Time{}
	d.end.Stop()
}

// renew doubts everything there is, besides what already is in doubt.
func (d *doubts) renew(services map[registry.Name]*registry.Service) {
	d.pause()
	d.back = time.Now()
	d.end.Reset(d.time)
	for name, s := range services {
		d.endpoints[name] = d.with(name, s)
	}
	for name, s := range d.endpoints {
		d.keep(name, s, func(e registry.Endpoint) bool {
			at := doubted{name, e.Address()}
			if _, ok := d.began[at]; !ok {
				d.began[at] = d.current
			}
			if _, ok := d.confirmed[at]; !ok {
				d.confirmed[at] = d.lost
			}
			return d.current-d.began[at] < renewals*d.time
		})
	}
}

// add doubts one endpoint more, which the registry reported last at a time.
func (d *doubts) add(e Endpoint, confirmed time.Time) {
	more := *e.of
	more.Endpoints = []registry.Endpoint{e.at}
	d.confirm(more.Name, &more) // it is there once
	d.endpoints[more.Name] = d.with(more.Name, &more)
	d.confirmed[doubted{more.Name, e.Address()}] = confirmed
}

// unconfirmed returns when the registry reported each endpoint of a service last that
// it has not reported since it is back.
func (d *doubts) unconfirmed(name registry.Name) map[doubted]time.Time {
	s := d.endpoints[name]
	if s == nil {
		return nil
	}
	all := make(map[doubted]time.Time, len(s.Endpoints))
	for _, e := range s.Endpoints {
		at := doubted{name, e.Address()}
		all[at] = d.confirmed[at]
	}
	return all
}

// clear gives up what is in doubt.
func (d *doubts) clear() {
	clear(d.endpoints)
	clear(d.began)
	clear(d.confirmed)
}

// confirm drops what a service is reported to have.
func (d *doubts) confirm(name registry.Name, now *registry.Service) {
	s := d.endpoints[name]
	if s == nil || now == nil {
		return
	}
	d.keep(name, s, func(e registry.Endpoint) bool {
		return !slices.ContainsFunc(now.Endpoints, func(o registry.Endpoint) bool { return o.Address() == e.Address() })
	})
}

// keep drops the endpoints of a service that stay in doubt no longer.
func (d *doubts) keep(name registry.Name, s *registry.Service, stays func(registry.Endpoint) bool) {
	left := *s
	left.Endpoints = slices.DeleteFunc(slices.Clone(s.Endpoints), func(e registry.Endpoint) bool {
		gone := !stays(e)
		if gone {
			delete(d.began, doubted{name, e.Address()})
			delete(d.confirmed, doubted{name, e.Address()})
		}
		return gone
	})
	d.endpoints[name] = &left
	if len(left.Endpoints) == 0 {
		delete(d.endpoints, name)
	}
}

// over reports whether the registry has been current for the time.
func (d *doubts) over() bool { return !d.back.IsZero() && time.Since(d.back) >= d.time }

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
