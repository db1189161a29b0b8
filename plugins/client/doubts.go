package client

import (
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// doubts are the endpoints that were known before an outage, or from the state file, and that
// the registry has not reported since. A restarted registry fills up as providers come back
// one by one, so that a missing endpoint is not necessarily gone. An endpoint that is reported
// again leaves the doubts. Its next removal counts at once.
//
// Only time in which the registry is current counts. A doubt ends when the registry has been
// current for the period without a break. A doubt that was renewed for too long ends when the
// registry comes back. The index guards doubts by its mutex.
type doubts struct {
	period    time.Duration
	timer     *time.Timer // ready when the registry has been current for the period
	endpoints map[registry.Name]*registry.Service
	began     map[doubted]time.Duration // totalCurrent when the doubt began
	confirmed map[doubted]time.Time     // when the registry last reported the endpoint

	lastCurrent  time.Time     // when the registry was last current
	totalCurrent time.Duration // how long the registry was current before currentSince
	currentSince time.Time     // zero: the registry is unreachable
}

// doubted identifies one endpoint.
type doubted struct {
	name    registry.Name
	address string
}

// renewals limits a doubt while the registry is never current for a whole period: the doubt
// ends after this many periods in total. Otherwise a registry that flaps would keep removed
// endpoints forever.
const renewals = 4

func newDoubts(period time.Duration) doubts {
	timer := time.NewTimer(period)
	timer.Stop()
	return doubts{
		period: period, timer: timer, endpoints: make(map[registry.Name]*registry.Service),
		began: make(map[doubted]time.Duration), confirmed: make(map[doubted]time.Time),
	}
}

// pause stops counting, because the registry is unreachable.
func (d *doubts) pause() {
	if !d.currentSince.IsZero() {
		d.totalCurrent += time.Since(d.currentSince)
		d.lastCurrent = time.Now()
	}
	d.currentSince = time.Time{}
	d.timer.Stop()
}

// renew adds all endpoints of services to the doubts, and restarts the period.
func (d *doubts) renew(services map[registry.Name]*registry.Service) {
	d.pause()
	d.currentSince = time.Now()
	d.timer.Reset(d.period)
	for name, s := range services {
		d.endpoints[name] = d.merged(name, s)
	}
	for name, s := range d.endpoints {
		d.retain(name, s, func(e registry.Endpoint) bool {
			at := doubted{name, e.Address()}
			if _, ok := d.began[at]; !ok {
				d.began[at] = d.totalCurrent
			}
			if _, ok := d.confirmed[at]; !ok {
				d.confirmed[at] = d.lastCurrent
			}
			return d.totalCurrent-d.began[at] < renewals*d.period
		})
	}
}

// add adds one endpoint, which the registry last reported at the time confirmed.
func (d *doubts) add(e Endpoint, confirmed time.Time) {
	more := *e.service
	more.Endpoints = []registry.Endpoint{e.reported}
	d.confirm(more.Name, &more) // so that the endpoint is not added twice
	d.endpoints[more.Name] = d.merged(more.Name, &more)
	d.confirmed[doubted{more.Name, e.Address()}] = confirmed
}

// unconfirmed returns the doubted endpoints of a service, with the time at which the registry
// last reported each.
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

// clear drops all doubts.
func (d *doubts) clear() {
	clear(d.endpoints)
	clear(d.began)
	clear(d.confirmed)
}

// confirm removes the endpoints that a service is now reported to have.
func (d *doubts) confirm(name registry.Name, now *registry.Service) {
	s := d.endpoints[name]
	if s == nil || now == nil {
		return
	}
	d.retain(name, s, func(e registry.Endpoint) bool {
		return !slices.ContainsFunc(now.Endpoints, func(o registry.Endpoint) bool { return o.Address() == e.Address() })
	})
}

// retain removes the endpoints of a service for which stays returns false.
func (d *doubts) retain(name registry.Name, s *registry.Service, stays func(registry.Endpoint) bool) {
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

// periodOver reports whether the registry has been current for the period.
func (d *doubts) periodOver() bool {
	return !d.currentSince.IsZero() && time.Since(d.currentSince) >= d.period
}

// addNames adds the names of services with doubted endpoints that answer a query.
func (d *doubts) addNames(q Query, to map[registry.Name]struct{}) {
	if len(d.endpoints) == 0 {
		return
	}
	for _, one := range q.alternatives() {
		for name, s := range d.endpoints {
			if slices.Contains(queries(s), one) {
				to[name] = struct{}{}
			}
		}
	}
}

// merged returns a service together with its doubted endpoints.
func (d *doubts) merged(name registry.Name, now *registry.Service) *registry.Service {
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
