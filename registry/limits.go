package registry

import (
	"errors"
	"fmt"
)

// ErrLimit is wrapped by the reason why a table is stale that would exceed its limits.
var ErrLimit = errors.New("more than its limits allow")

// Limits bound a table; 0 is no bound.
type Limits struct {
	Services, Endpoints int
	Bytes               int64 // of names, addresses and attributes, roughly as in memory
}

// Usage is the part of its limits that a table uses.
type Usage struct {
	Services, Endpoints int
	Bytes               int64
	Over                int // services that were not updated because they do not fit
}

// load is the size of services against the limits.
type load struct {
	services, endpoints int
	bytes               int64
	health              Endpoints
}

// Endpoints are numbers of endpoints by their health.
type Endpoints [Disabled + 1]int

func loadOf(s *Service) load {
	if s == nil {
		return load{}
	}
	l := load{services: 1, endpoints: len(s.Endpoints)}
	l.bytes = int64(len(s.Name)+len(s.Namespace)+len(s.Application)+len(s.Protocol)+len(s.Path)) + s.Attributes.bytes()
	for _, i := range s.Interfaces {
		l.bytes += int64(len(i.Name) + len(i.Version) + len(i.Group))
	}
	for _, e := range s.Endpoints {
		const fixed = 160 // an Endpoint itself
		l.health[min(e.Health, Disabled)]++
		l.bytes += fixed + int64(len(e.Host)+len(e.PortName)+len(e.Protocol)+len(e.Zone)+len(e.Instance)+len(e.URLPath)+len(e.Path)) + e.Attributes.bytes()
	}
	return l
}

func (a Attributes) bytes() (n int64) {
	for k, v := range a {
		n += int64(len(k) + len(v))
	}
	return n
}

func (l load) add(o load) load {
	for i, n := range o.health {
		l.health[i] += n
	}
	return load{l.services + o.services, l.endpoints + o.endpoints, l.bytes + o.bytes, l.health}
}

func (l load) sub(o load) load {
	for i, n := range o.health {
		l.health[i] -= n
	}
	return load{l.services - o.services, l.endpoints - o.endpoints, l.bytes - o.bytes, l.health}
}

// shrunk reports whether a load is less than another by a tenth.
func (l load) shrunk(since load) bool {
	return since == load{} || l.services < since.services*9/10 || l.endpoints < since.endpoints*9/10 || l.bytes < since.bytes*9/10
}

// allow reports whether a load may replace another. Less is always allowed.
func (m Limits) allow(before, after load) bool {
	return (m.Services == 0 || after.services <= max(m.Services, before.services)) &&
		(m.Endpoints == 0 || after.endpoints <= max(m.Endpoints, before.endpoints)) &&
		(m.Bytes == 0 || after.bytes <= max(m.Bytes, before.bytes))
}

// room reports whether a tenth is free, so that another full read may fit.
func (m Limits) room(l load) bool {
	return (m.Services == 0 || l.services < m.Services-m.Services/10) &&
		(m.Endpoints == 0 || l.endpoints < m.Endpoints-m.Endpoints/10) &&
		(m.Bytes == 0 || l.bytes < m.Bytes-m.Bytes/10)
}

// Limit sets the limits of the table. A service that does not fit keeps its old row.
// The table is then stale, with a reason that wraps ErrLimit, until everything fits.
// Again is called when a full read may fit; it must not block and may be nil.
func (t *Table) Limit(l Limits, again func()) {
	t.mu.Lock()
	t.limits, t.again, t.asked = l, again, load{}
	t.mu.Unlock()
	t.retry()
}

// Beside sets the number of bytes that the source keeps beside the rows. It returns
// false if so many do not fit, and the source must not keep more. At most half of the
// limit may be beside the rows.
func (t *Table) Beside(bytes int64) bool {
	defer t.retry()
	t.mu.Lock()
	defer t.mu.Unlock()
	after := t.load
	after.bytes += bytes - t.beside
	if bytes > t.beside && (t.limits.Bytes > 0 && bytes > t.limits.Bytes/2 || !t.limits.allow(t.load, after)) {
		return false
	}
	t.load, t.beside = after, bytes
	return true
}

// Usage returns the part of its limits that the table uses.
func (t *Table) Usage() Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Usage{Services: t.load.services, Endpoints: t.load.endpoints, Bytes: t.load.bytes, Over: len(t.over)}
}

// fits reports whether a service may replace another, and counts it.
func (t *Table) fits(s, old *Service) bool {
	after := t.load.sub(loadOf(old)).add(loadOf(s))
	if !t.limits.allow(t.load, after) {
		if t.over == nil {
			t.over = make(map[Name]struct{})
		}
		t.over[s.Name] = struct{}{}
		return false
	}
	t.load = after
	delete(t.over, s.Name)
	return true
}

func (t *Table) staleReason() error {
	if t.stale != nil || len(t.over) == 0 {
		return t.stale
	}
	return fmt.Errorf("%d of its services do not fit beside %d services, %d endpoints and %d bytes: %w; raise limits, or select less",
		len(t.over), t.load.services, t.load.endpoints, t.load.bytes, ErrLimit)
}

// retry requests a full read if that may fit now. It is called without the lock.
func (t *Table) retry() {
	t.mu.Lock()
	again := t.again
	if len(t.over) == 0 || again == nil || !t.limits.room(t.load) || !t.load.shrunk(t.asked) {
		t.mu.Unlock()
		return
	}
	t.asked = t.load
	t.mu.Unlock()
	again()
}
