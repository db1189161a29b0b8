package guard

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/registry"
)

// A Key is an endpoint of a service.
type Key struct {
	Service registry.Group
	Key     string
}

// A Loss says how many endpoints a held service had and would keep.
type Loss struct {
	Service  registry.Group
	From, To int // the baseline, and the endpoints that would remain
}

// A Hold is a mass deletion that is held back. A guard has at most one.
type Hold struct {
	ID     string // a hash of Keys
	Keys   []Key  // in order
	Losses []Loss // by service
	Since  time.Time

	Emptied, Services int // services that would be left without an endpoint, of all with a baseline
	Lost, Endpoints   int // held endpoints, of all baselines

	// OperatorOnly says that only an operator ends the hold: the source shows nothing, or most
	// services would be left empty.
	OperatorOnly bool
}

// newHold returns a hold of the candidates that have one of the fates. The services must be
// in order.
func (g *Guard) newHold(services []*guardedService, operatorOnly bool, fates ...Fate) *Hold {
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
	h.Emptied, h.Services = g.emptied(), g.sum.services
	h.Lost, h.Endpoints, h.OperatorOnly = len(h.Keys), g.sum.endpoints, operatorOnly
	return h
}
