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

// modelCertainty tells how far the model is in sync with the API.
type modelCertainty struct {
	isPending bool             // an object kind was not yet listed or is not watched
	lost      error            // why everything may be out of date; nil if it is not
	refused   map[string]error // namespaces that may not be read, with the error
}

// certainty collects the status of all informers. The caller holds mu.
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
	c.isPending = slices.ContainsFunc(r.informers, func(i *informer) bool {
		return c.refused[i.status.Namespace] == nil && (!i.status.Listed || !i.isWatched)
	})
	return c
}

// addCostOfUnknownPods adds to the error of reading Pods how many endpoints are left out
// because of it. After a rolling update, all known Pods may have been deleted. The caller
// holds mu.
func (c *modelCertainty) addCostOfUnknownPods(r *Reader) {
	for _, i := range r.informers {
		n := 0
		if i.resource.plural == "pods" && i.status.Err != nil {
			n = r.model.countWithoutPod(i.status.Namespace)
		}
		if n == 0 {
			continue
		}
		costs := func(err error) error {
			return fmt.Errorf("%w; until then %s not offered, because their Pods are unknown: "+
				"consumers may be left without a working endpoint", err, registry.Counted(n, "endpoint is", "endpoints are"))
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

	// What was reported.
	epoch, connection int       // epoch 0: nothing was complete yet
	complete          bool      // everything was reported in this epoch
	lost              string    // text of the last mesh.Changes.Lost
	lostAt            time.Time // since when everything may be out of date; zero if it is not
	refused           map[string]string

	// The newest results of Model.Mapping and Model.Unread.
	mapping       metadata.Mapping
	skipped       []metadata.PublicationError
	unreadObjects error
	keysChanged   bool // the mapping has to be reported again
}

var (
	errRechecking = errors.New("reading everything again over a new connection")
	errRelisting  = errors.New("reading everything again, because the API no longer has the changes in between")
)

// beginConnection reports that a new connection begins, over which everything is read again.
func (p *changeReporter) beginConnection() {
	p.connection++
	if p.complete {
		p.complete = false
		p.changed(mesh.Changes{Epoch: p.epoch, Connection: p.connection, Lost: errRechecking})
	}
}

// report reports what changed since its last call.
func (p *changeReporter) report() {
	r := p.reader
	r.mu.Lock()
	known := r.certainty()
	if known.lost == nil && !known.isPending {
		for _, n := range r.o.Namespaces {
			if known.refused[n] == nil {
				r.model.Show(n)
			}
		}
	}
	c := p.updateModel(known)
	known.addCostOfUnknownPods(r)
	r.mu.Unlock()
	p.setCertainty(&c, known)
	c.Epoch, c.Connection = p.epoch, p.connection
	if p.keysChanged && p.epoch > 0 || c.Lost != nil || c.Complete {
		c.Mapping, p.keysChanged = p.snapshot(known), false
	}
	p.changed(c)
}

// updateModel updates the model, and returns the changed and the rejected clusters. The
// caller holds the reader's mu.
func (p *changeReporter) updateModel(known modelCertainty) mesh.Changes {
	model := p.reader.model
	d := model.Update()
	c := mesh.Changes{Clusters: d.Clusters, Rejected: d.Rejected}
	if d.Keys {
		p.mapping, p.skipped = model.Mapping()
		p.unreadObjects = model.Unread()
	}
	refused := make(map[string]string, len(known.refused))
	for n, err := range known.refused {
		refused[n] = err.Error()
		for _, name := range model.ClustersIn(n) {
			c.Rejected[name] = err
		}
	}
	for n := range p.refused {
		if _, still := refused[n]; !still {
			for _, name := range model.ClustersIn(n) {
				if c.Rejected[name] == nil {
					c.Rejected[name] = nil // ends the rejection
				}
			}
		}
	}
	p.keysChanged = p.keysChanged || d.Keys || !maps.Equal(refused, p.refused)
	p.refused = refused
	return c
}

// setCertainty sets whether the changes complete an epoch, or everything may be out of date.
func (p *changeReporter) setCertainty(c *mesh.Changes, known modelCertainty) {
	lost := known.lost
	if lost == nil && known.isPending && p.complete {
		lost = errRelisting
	}
	switch {
	case lost != nil:
		if p.complete || lost.Error() != p.lost {
			c.Lost = lost
		}
		p.complete, p.lost = false, lost.Error()
	case !known.isPending && !p.complete:
		p.epoch++
		p.complete, p.lost, c.Complete = true, "", true
	}
}

// snapshot returns the mapping with its state.
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
	if p.unreadObjects != nil {
		unread = append(unread, p.unreadObjects.Error())
	}
	if len(unread) > 0 {
		s.Unread = errors.New(strings.Join(unread, "; "))
	}
	return s
}
