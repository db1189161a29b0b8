package registry

import (
	"errors"
	"fmt"
)

// ErrLimit is wrapped by the reason for which a table is stale that would hold
// more than its limits allow.
var ErrLimit = errors.New("more than its limits allow")

// Limits bound what a table holds; 0 is no bound.
type Limits struct {
	Services, Endpoints int
	Bytes               int64 // of all names, addresses and attributes, roughly what they take in memory
}

// Usage is how much of its limits a table uses.
type Usage struct {
	Services, Endpoints int
	Bytes               int64
	Over                int // services that are left as they were because they would not fit
}

// load is what services weigh against limits.
type load struct {
	services, endpoints int
	bytes               int64
	health              Endpoints
}

// Endpoints are numbers of endpoints by their health.
type Endpoints [Disabled + 1]int

func weigh(s *Service) load {
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

// shrunk reports whether much has gone since there was another load.
func (l load) shrunk(since load) bool {
	return since == load{} || l.services < since.services*9/10 || l.endpoints < since.endpoints*9/10 || l.bytes < since.bytes*9/10
}

// allow reports whether so much may be held in place of what was held before:
// what shrinks always may.
func (m Limits) allow(before, after load) bool {
	return (m.Services == 0 || after.services <= max(m.Services, before.services)) &&
		(m.Endpoints == 0 || after.endpoints <= max(m.Endpoints, before.endpoints)) &&
		(m.Bytes == 0 || after.bytes <= max(m.Bytes, before.bytes))
}

// room reports whether enough is free for another attempt to be worth it.
func (m Limits) room(l load) bool {
	return (m.Services == 0 || l.services < m.Services-m.Services/10) &&
		(m.Endpoints == 0 || l.endpoints < m.Endpoints-m.Endpoints/10) &&
		(m.Bytes == 0 || l.bytes < m.Bytes-m.Bytes/10)
}

// Limit bounds what the table holds. A service that does not fit is left as it
// was, and from then on nothing may be concluded from what is missing: the
// table is stale, with a reason that wraps ErrLimit, until everything fits.
// Again is called when there is room for a full reading to fit; it must not
// block and may be nil.
func (t *Table) Limit(l Limits, again func()) {
	t.mu.Lock()
	t.limits, t.again, t.asked = l, again, load{}
	t.mu.Unlock()
	t.retry()
}

// Beside counts bytes that a source keeps beside the rows: all of them, each
// time. False: so many do not fit, and the source has to do with what it keeps.
// They may take half of what the limits allow, so that the rows have room.
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

// Usage returns how much of its limits the table uses.
func (t *Table) Usage() Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Usage{Services: t.load.services, Endpoints: t.load.endpoints, Bytes: t.load.bytes, Over: len(t.over)}
}

// fits takes a service that is to replace another into account, and reports
// whether it may.
func (t *Table) fits(s, old *Service) bool {
	after := t.load.sub(weigh(old)).add(weigh(s))
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

// held returns why the rows may be out of date.
func (t *Table) held() error {
	if t.stale != nil || len(t.over) == 0 {
		return t.stale
	}
	return fmt.Errorf("%d of its services do not fit beside %d services, %d endpoints and %d bytes: %w; raise limits, or select less",
		len(t.over), t.load.services, t.load.endpoints, t.load.bytes, ErrLimit)
}

// retry asks for a full reading once what did not fit may. It is called
// without the lock.
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
