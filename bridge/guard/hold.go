package guard

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Key is an endpoint in a service.
type Key struct {
	Service registry.Group
	Key     string
}

// A Loss is what a service that is held had and would have left.
type Loss struct {
	Service  registry.Group
	From, To int // endpoints
}

// A Hold is the mass deletion that waits. A guard has at most one.
type Hold struct {
	ID                string // a hash of Keys
	Keys              []Key  // in order
	Losses            []Loss // by service
	Since             time.Time
	Emptied, Services int  // services without an endpoint when it goes, of so many
	Lost, Endpoints   int  // endpoints that are held, of so many
	Person            bool // only a person ends it: the source shows nothing, or most services would be left empty
}

// newHold returns those candidates of services in order that have one of these fates.
func (g *Guard) newHold(services []*guardedService, personOnly bool, fates ...Fate) *Hold {
	n := 0
	for _, s := range services {
		n += len(s.candidates)
	}
	h, hash := &Hold{Keys: make([]Key, 0, n)}, sha256.New()
	for _, s := range services {
		from, name := len(h.Keys), s.Service.String()
		for key, c := range s.candidates {
			if slices.Contains(fates, c.fate) {
				h.Keys = append(h.Keys, Key{s.Service, key})
			}
		}
		slices.SortFunc(h.Keys[from:], func(a, b Key) int { return cmp.Compare(a.Key, b.Key) })
		for _, k := range h.Keys[from:] {
			hash.Write([]byte(name + "\x00" + k.Key + "\x00"))
		}
	}
	h.ID = hex.EncodeToString(hash.Sum(nil)[:6])
	h.Emptied, h.Services, h.Lost, h.Endpoints, h.Person = g.emptied(), g.sum.services, len(h.Keys), g.sum.endpoints, personOnly
	return h
}
