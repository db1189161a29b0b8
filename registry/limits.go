package registry

import (
	"errors"
	"fmt"
)

// ErrLimit is wrapped by the reason of a table that is stale because it would exceed
// its limits.
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

// load is the size of services, as the limits count it.
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
		texts := len(e.Host) + len(e.PortName) + len(e.Protocol) + len(e.Zone) + len(e.Instance) + len(e.URLPath) +
			len(e.Path)
		l.bytes += fixed + int64(texts) + e.Attributes.bytes()
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

// shrunk reports whether a load is smaller than an earlier one by a tenth.
func (l load) shrunk(before load) bool {
	return before == load{} || l.services < before.services*9/10 || l.endpoints < before.endpoints*9/10 ||
		l.bytes < before.bytes*9/10
}

// allow reports whether a load may replace another. A smaller load is always allowed.
func (m Limits) allow(before, after load) bool {
	return (m.Services == 0 || after.services <= max(m.Services, before.services)) &&
		(m.Endpoints == 0 || after.endpoints <= max(m.Endpoints, before.endpoints)) &&
		(m.Bytes == 0 || after.bytes <= max(m.Bytes, before.bytes))
}

// hasRoom reports whether a tenth of the limits is free, so that another full read
// may fit.
func (m Limits) hasRoom(l load) bool {
	return (m.Services == 0 || l.services < m.Services-m.Services/10) &&
		(m.Endpoints == 0 || l.endpoints < m.Endpoints-m.Endpoints/10) &&
		(m.Bytes == 0 || l.bytes < m.Bytes-m.Bytes/10)
}

// Limit sets the limits of the table. A service that does not fit keeps its old row.
// The table is then stale, with a reason that wraps ErrLimit, until everything fits.
// The table calls readAll when a full read may fit. It must not block and may be nil.
func (t *Table) Limit(l Limits, readAll func()) {
	t.mu.Lock()
	t.limits, t.readAll, t.loadAtReadAll = l, readAll, load{}
	t.mu.Unlock()
	t.readAllIfRoom()
}

// Reserve sets the number of bytes that the source keeps in addition to the rows. It
// returns false if they do not fit; the source must then not keep more than before. At
// most half of the limit can be reserved.
func (t *Table) Reserve(bytes int64) bool {
	defer t.readAllIfRoom()
	t.mu.Lock()
	defer t.mu.Unlock()
	after := t.load
	after.bytes += bytes - t.reserved
	tooMany := t.limits.Bytes > 0 && bytes > t.limits.Bytes/2
	if bytes > t.reserved && (tooMany || !t.limits.allow(t.load, after)) {
		return false
	}
	t.load, t.reserved = after, bytes
	return true
}

// Usage returns the part of its limits that the table uses.
func (t *Table) Usage() Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Usage{Services: t.load.services, Endpoints: t.load.endpoints, Bytes: t.load.bytes, Over: len(t.notFitting)}
}

// countIfFits counts a service instead of an old one. If it does not fit, it returns
// false and counts nothing.
func (t *Table) countIfFits(s, old *Service) bool {
	after := t.load.sub(loadOf(old)).add(loadOf(s))
	if !t.limits.allow(t.load, after) {
		if t.notFitting == nil {
			t.notFitting = make(map[Name]struct{})
		}
		t.notFitting[s.Name] = struct{}{}
		return false
	}
	t.load = after
	delete(t.notFitting, s.Name)
	return true
}

func (t *Table) staleReason() error {
	if t.stale != nil || len(t.notFitting) == 0 {
		return t.stale
	}
	return fmt.Errorf("%d of its services do not fit in addition to %d services, %d endpoints and %d bytes: %w; "+
		"raise limits, or select fewer services",
		len(t.notFitting), t.load.services, t.load.endpoints, t.load.bytes, ErrLimit)
}

// readAllIfRoom requests a full read if everything may fit now. It is called without
// the lock.
func (t *Table) readAllIfRoom() {
	t.mu.Lock()
	readAll := t.readAll
	if len(t.notFitting) == 0 || readAll == nil || !t.limits.hasRoom(t.load) || !t.load.shrunk(t.loadAtReadAll) {
		t.mu.Unlock()
		return
	}
	t.loadAtReadAll = t.load
	t.mu.Unlock()
	readAll()
}
