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

// add adds the candidates of a service that have one of these fates. Services are
// added in order.
func (h *Hold) add(s *service, fates ...Fate) {
	n := len(h.Keys)
	for key, c := range s.candidates {
		if slices.Contains(fates, c.fate) {
			h.Keys = append(h.Keys, Key{s.Service, key})
		}
	}
	slices.SortFunc(h.Keys[n:], func(a, b Key) int { return cmp.Compare(a.Key, b.Key) })
}

// seal completes a hold.
func (g *Guard) seal(h *Hold, personOnly bool) {
	h.Emptied, h.Services, h.Lost, h.Endpoints, h.Person = g.emptied(), g.sum.services, len(h.Keys), g.sum.endpoints, personOnly
	hash, service := sha256.New(), ""
	for i, k := range h.Keys {
		if i == 0 || k.Service != h.Keys[i-1].Service {
			service = k.Service.String()
		}
		hash.Write([]byte(service + "\x00" + k.Key + "\x00"))
	}
	h.ID = hex.EncodeToString(hash.Sum(nil)[:6])
}
