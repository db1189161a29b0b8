package kube

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// modelCertainty is how reliable the model is.
type modelCertainty struct {
	pending bool             // a list is missing
	lost    error            // why everything may be out of date
	refused map[string]error // namespaces that may not be read, and why
}

// certainty looks at all informers. The caller holds the lock.
func (r *Reader) certainty() modelCertainty {
	c := modelCertainty{refused: make(map[string]error)}
	for _, i := range r.informers {
		_, forbidden := errors.AsType[*Forbidden](i.status.Err)
		switch {
		case forbidden && i.status.Namespace != "":
			c.refused[i.status.Namespace] = cmp.Or(c.refused[i.status.Namespace], i.status.Err)
		case i.status.Err != nil:
			c.lost = cmp.Or(c.lost, i.status.Err)
		}
	}
	if len(c.refused) == len(r.o.Namespaces) {
		c.lost = cmp.Or(c.lost, c.refused[r.o.Namespaces[0]])
	}
	c.pending = slices.ContainsFunc(r.informers, func(i *informer) bool {
		return c.refused[i.status.Namespace] == nil && (!i.status.Listed || !i.watched)
	})
	return c
}

// addPodless adds to the reason why Pods cannot be read what that costs: a rolling update
// leaves only endpoints of Pods that are gone. The caller holds the lock.
func (c *modelCertainty) addPodless(r *Reader) {
	for _, i := range r.informers {
		n := 0
		if i.resource.name == "pods" && i.status.Err != nil {
			n = r.model.podless(i.status.Namespace)
		}
		if n == 0 {
			continue
		}
		costs := func(err error) error {
			return fmt.Errorf("%w; %s not offered until then, because their Pods are not known: consumers may have none that works", err, registry.Counted(n, "endpoint is", "endpoints are"))
		}
		if c.lost != nil {
			c.lost = costs(c.lost)
		}
		if err := c.refused[i.status.Namespace]; err != nil {
			c.refused[i.status.Namespace] = costs(err)
		}
	}
}

// changeReporter reports changes of the model. Only the goroutine of Run touches it.
type changeReporter struct {
	reader  *Reader
	changed func(mesh.Changes)

	epoch, connection int  // epoch 0: the mapping was never reported
	complete          bool // everything was reported in this epoch
	keysChanged       bool // since the mapping was reported
	lost              string
	lostAt            time.Time // since when everything may be out of date; zero: it is not
	refused           map[string]string
	mapping           metadata.Mapping
	skipped           []metadata.PublicationError
	unread            error // why objects cannot be read that never could be
}

var (
	errRechecking = errors.New("reading everything anew over a new connection")
	errRelisting  = errors.New("reading everything anew, because the API has forgotten what changed meanwhile")
)

func (p *changeReporter) beginConnection() {
	p.connection++
	if p.complete {
		p.complete = false
		p.changed(mesh.Changes{Epoch: p.epoch, Connection: p.connection, Lost: errRechecking})
	}
}

func (p *changeReporter) report() {
	r := p.reader
	r.mu.Lock()
	known := r.certainty()
	if known.lost == nil && !known.pending {
		for _, n := range r.o.Namespaces {
			if known.refused[n] == nil {
				r.model.Show(n)
			}
		}
	}
	c := p.changes(known)
	known.addPodless(r)
	r.mu.Unlock()
	p.setCertainty(&c, known)
	c.Epoch, c.Connection = p.epoch, p.connection
	if p.keysChanged && p.epoch > 0 || c.Lost != nil || c.Complete {
		c.Mapping, p.keysChanged = p.snapshot(known), false
	}
	p.changed(c)
}

// changes updates the model. The caller holds the reader's lock.
func (p *changeReporter) changes(known modelCertainty) mesh.Changes {
	model := p.reader.model
	d := model.Update()
	c := mesh.Changes{Clusters: d.Clusters, Rejected: d.Rejected}
	if d.Keys {
		p.mapping, p.skipped = model.Mapping()
		p.unread = model.Unread()
	}
	refused := make(map[string]string, len(known.refused))
	for n, err := range known.refused {
		refused[n] = err.Error()
		for _, name := range model.In(n) {
			c.Rejected[name] = err
		}
	}
	for n := range p.refused {
		if _, still := refused[n]; !still {
			for _, name := range model.In(n) {
				if c.Rejected[name] == nil {
					c.Rejected[name] = nil // which ends the rejection
				}
			}
		}
	}
	p.keysChanged = p.keysChanged || d.Keys || !maps.Equal(refused, p.refused)
	p.refused = refused
	return c
}

// setCertainty adds to changes whether everything was reported, or may be out of date.
func (p *changeReporter) setCertainty(c *mesh.Changes, known modelCertainty) {
	lost := known.lost
	if lost == nil && known.pending && p.complete {
		lost = errRelisting
	}
	switch {
	case lost != nil:
		if p.complete || lost.Error() != p.lost {
			c.Lost = lost
		}
		p.complete, p.lost = false, lost.Error()
	case !known.pending && !p.complete:
		p.epoch++
		p.complete, p.lost, c.Complete = true, "", true
	}
}

func (p *changeReporter) snapshot(known modelCertainty) *debug.Snapshot {
	now := time.Now()
	switch {
	case known.lost == nil:
		p.lostAt = time.Time{}
	case p.lostAt.IsZero():
		p.lostAt = now
	default:
		now = p.lostAt
	}
	s := &debug.Snapshot{Mapping: p.mapping, Complete: p.epoch > 0, Err: known.lost, At: now}
	s.SetSkipped(p.skipped)
	var unread []string
	for _, n := range slices.Sorted(maps.Keys(known.refused)) {
		unread = append(unread, known.refused[n].Error())
	}
	if p.unread != nil {
		unread = append(unread, p.unread.Error())
	}
	if len(unread) > 0 {
		s.Unread = errors.New(strings.Join(unread, "; "))
	}
	return s
}
