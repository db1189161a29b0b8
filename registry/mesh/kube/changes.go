package kube

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// teller tells what changed. Only the goroutine of Run touches it.
type teller struct {
	reader  *Reader
	changed func(mesh.Changes)

	epoch, connection int
	told              bool // everything, in this epoch
	lost              string
	refused           map[string]string
	keys, mapped      bool // keys changed since they were told; they were told once
	mapping           metadata.Mapping
	skipped           []metadata.PublicationError
	unread            error     // why objects cannot be read that never could be
	lostAt            time.Time // since when all may be out of date; zero: it is not
}

// connect begins another connection.
func (t *teller) connect() {
	t.connection++
	if t.told {
		t.told = false
		t.changed(mesh.Changes{Epoch: t.epoch, Connection: t.connection, Lost: errRechecking})
	}
}

// tell tells what changed since the last.
func (t *teller) tell() {
	r := t.reader
	r.mu.Lock()
	k := r.assess()
	c := t.changes(k)
	r.mu.Unlock()
	t.know(&c, k)
	c.Epoch, c.Connection = t.epoch, t.connection
	if t.keys && t.mapped || c.Lost != nil || c.Complete {
		c.Mapping, t.keys = t.snapshot(k), false
	}
	t.changed(c)
}

// changes gathers what follows from the objects. The reader's lock is held.
func (t *teller) changes(k knowledge) mesh.Changes {
	d := t.reader.world.Settle()
	c := mesh.Changes{Clusters: d.Clusters, Rejected: d.Rejected}
	if d.Keys {
		t.mapping, t.skipped = t.reader.world.Mapping()
		t.unread = t.reader.world.Unread()
	}
	refused := texts(k.refused)
	for n, err := range k.refused {
		for _, name := range t.reader.world.In(n) {
			c.Rejected[name] = err
		}
	}
	for n := range t.refused {
		if _, still := refused[n]; !still {
			for _, name := range t.reader.world.In(n) {
				if c.Rejected[name] == nil {
					c.Rejected[name] = nil
				}
			}
		}
	}
	t.keys = t.keys || d.Keys || !maps.Equal(refused, t.refused)
	t.refused = refused
	return c
}

func texts(errs map[string]error) map[string]string {
	out := make(map[string]string, len(errs))
	for k, err := range errs {
		out[k] = err.Error()
	}
	return out
}

// know adds how far all may be relied on.
func (t *teller) know(c *mesh.Changes, k knowledge) {
	lost := k.lost
	if lost == nil && k.pending && t.told {
		lost = errReading
	}
	switch {
	case lost != nil:
		if t.told || lost.Error() != t.lost {
			c.Lost = lost
		}
		t.told, t.lost = false, lost.Error()
	case !k.pending && !t.told:
		t.epoch++
		t.told, t.mapped, t.lost, c.Complete = true, true, "", true
	}
}

var errReading = errors.New("reading everything anew, because the API has forgotten what changed meanwhile")

func (t *teller) snapshot(k knowledge) *debug.Snapshot {
	now := time.Now()
	switch {
	case k.lost == nil:
		t.lostAt = time.Time{}
	case t.lostAt.IsZero():
		t.lostAt = now
	default:
		now = t.lostAt
	}
	s := &debug.Snapshot{
		Mapping: t.mapping, Complete: t.mapped, Err: k.lost,
		Skipped: t.skipped[:min(len(t.skipped), maxSkipped)], SkippedTotal: len(t.skipped), At: now,
	}
	var all []string
	for _, n := range slices.Sorted(maps.Keys(k.refused)) {
		all = append(all, k.refused[n].Error())
	}
	if t.unread != nil {
		all = append(all, t.unread.Error())
	}
	if len(all) > 0 {
		s.Unread = errors.New(strings.Join(all, "; "))
	}
	return s
}

// maxSkipped is how many keys that cannot be read are listed.
const maxSkipped = 1000

// knowledge is how far the world may be relied on.
type knowledge struct {
	pending bool             // something is still to be listed
	lost    error            // why all may be out of date
	refused map[string]error // namespaces that may not be read, and why
}
