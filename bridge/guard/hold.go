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

// Compare orders keys by service.
func (k Key) Compare(o Key) int {
	return cmp.Or(k.Service.Compare(o.Service), cmp.Compare(k.Key, o.Key))
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

// add adds the candidates of a service that have one of these fates.
func (h *Hold) add(s *service, fates ...Fate) {
	for key, c := range s.candidates {
		if slices.Contains(fates, c.fate) {
			h.Keys = append(h.Keys, Key{s.Service, key})
		}
	}
}

// seal completes a hold.
func (g *Guard) seal(h *Hold, personOnly bool) {
	h.Emptied, h.Services, h.Lost, h.Endpoints, h.Person = g.emptied(), g.sum.services, len(h.Keys), g.sum.endpoints, personOnly
	slices.SortFunc(h.Keys, Key.Compare)
	slices.SortFunc(h.Losses, func(a, b Loss) int { return a.Service.Compare(b.Service) })
	hash := sha256.New()
	for _, k := range h.Keys {
		hash.Write([]byte(k.Service.String() + "\x00" + k.Key + "\x00"))
	}
	h.ID = hex.EncodeToString(hash.Sum(nil)[:6])
}
