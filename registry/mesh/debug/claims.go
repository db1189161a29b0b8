package debug

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
)

// claimSet records which client publishes which key, and decides when such a claim ends. It
// does no I/O, and its caller passes the time. It is owned by Run's goroutine.
//
//	connections of the node                          the claim ends
//	one publishes it                                 not
//	one cannot be read, or this key cannot           not
//	one publishes the key at another address         at once
//	one publishes its services, without this key     after grace
//	none has published services                      after connectionGrace, but not before notBefore
//
// Time alone ends nothing: a claim ends when every replica was read since its end was due.
// Every replica must have answered at least once. A replica whose last read failed keeps all
// claims but the withdrawn ones.
type claimSet struct {
	// Immutable.
	grace, connectionGrace time.Duration

	claims map[claimKey]*claim

	// notBefore is set after a replica started, whose clients may not have reconnected yet.
	notBefore time.Time

	nextEnd     time.Time // when a reading can end the next claim; zero: none
	absentCount int       // claims that no connection publishes
}

// maxAbsent bounds the claims that no connection publishes. While a replica does not answer,
// none of them can end.
const maxAbsent = 10000

// claimKey identifies a claim: a node publishes the address of a key.
type claimKey struct {
	node    string
	key     naming.ServiceKey
	address naming.HostAddress
}

// claim is the state of a claim.
type claim struct {
	client      string    // the last connection that published it
	absentSince time.Time // since when no connection publishes it; zero: one does
	withdrawn   bool      // a connection of the node publishes its services, without this key
}

// readingCertainty is how reliable the readings are together.
type readingCertainty struct {
	complete bool      // every listed replica answered at least once
	fresh    bool      // every listed replica answered the last time
	asOf     time.Time // when the oldest of the last readings began
}

// nodePublication is the union of the publications of a node's connections.
type nodePublication struct {
	keys       map[naming.ServiceKey]bool
	registered bool // some connection has published its services
	unread     bool // some connection cannot be read
	unreadKeys []naming.ServiceKey
}

func newClaimSet(grace, connectionGrace time.Duration) *claimSet {
	return &claimSet{grace: grace, connectionGrace: connectionGrace, claims: make(map[claimKey]*claim)}
}

// update applies the publications of all connected clients, and removes the claims that end.
func (s *claimSet) update(clients iter.Seq[*connectedClient], known readingCertainty, now time.Time) {
	nodes := make(map[string]*nodePublication)
	current := make(map[claimKey]bool)
	for c := range clients {
		if c.publication == nil {
			continue
		}
		n := nodes[c.node]
		if n == nil {
			n = &nodePublication{keys: make(map[naming.ServiceKey]bool)}
			nodes[c.node] = n
		}
		n.add(c.publication)
		for key, address := range c.publication.Hosts {
			k := claimKey{node: c.node, key: key, address: address}
			current[k] = true
			if s.claims[k] == nil {
				s.claims[k] = new(claim)
			}
			*s.claims[k] = claim{client: c.id}
		}
	}
	s.nextEnd = time.Time{}
	for k, c := range s.claims {
		if !current[k] {
			s.updateAbsent(k, c, cmp.Or(nodes[k.node], new(nodePublication)), known, now)
		}
	}
	if s.absentCount = len(s.claims) - len(current); s.absentCount > maxAbsent {
		s.evict(current)
	}
}

// evict removes absent claims. Among claims that map the same key to the same address, it keeps
// the newest. Then it removes the oldest claims above the bound.
func (s *claimSet) evict(current map[claimKey]bool) {
	var absent []claimKey
	for k, c := range s.claims {
		if !current[k] && !c.absentSince.IsZero() { // zero: its client is connected and cannot be read
			absent = append(absent, k)
		}
	}
	slices.SortFunc(absent, func(a, b claimKey) int {
		return cmp.Or(s.claims[b].absentSince.Compare(s.claims[a].absentSince), cmp.Compare(a.node, b.node))
	})
	kept := make(map[claimKey]bool, maxAbsent)
	for _, k := range absent {
		if mapped := (claimKey{key: k.key, address: k.address}); kept[mapped] || len(kept) == maxAbsent {
			delete(s.claims, k)
		} else {
			kept[mapped] = true
		}
	}
	s.absentCount = len(s.claims) - len(current)
}

// updateAbsent updates or ends a claim that no connection publishes. See claimSet.
func (s *claimSet) updateAbsent(
	k claimKey, c *claim, n *nodePublication, known readingCertainty, now time.Time,
) {
	if n.unread || slices.Contains(n.unreadKeys, k.key) {
		*c = claim{client: c.client} // it may still be published
		return
	}
	if c.absentSince.IsZero() {
		c.absentSince = now
	}
	if n.registered && !c.withdrawn {
		c.withdrawn, c.absentSince = true, now
	}
	end := s.endOf(c)
	if n.keys[k.key] {
		end = time.Time{}
	}
	switch {
	case !known.complete, !known.fresh && !c.withdrawn:
	case !known.asOf.Before(end):
		delete(s.claims, k)
	case s.nextEnd.IsZero() || end.Before(s.nextEnd):
		s.nextEnd = end
	}
}

// endOf returns when a claim may end.
func (s *claimSet) endOf(c *claim) time.Time {
	if c.withdrawn {
		return c.absentSince.Add(s.grace)
	}
	if end := c.absentSince.Add(s.connectionGrace); end.After(s.notBefore) {
		return end
	}
	return s.notBefore
}

// add adds the publication of one connection.
func (n *nodePublication) add(p *metadata.Publication) {
	n.registered = n.registered || !p.Silent && !p.Unread
	n.unread = n.unread || p.Unread
	n.unreadKeys = append(n.unreadKeys, p.UnreadKeys...)
	for key := range p.Hosts {
		n.keys[key] = true
	}
}

// mapping returns the mapping of all claims.
func (s *claimSet) mapping() metadata.Mapping {
	return metadata.NewMapping(func(yield func(metadata.Claim) bool) {
		for k, c := range s.claims {
			if !yield(metadata.Claim{Key: k.key, Address: k.address, Client: c.client}) {
				return
			}
		}
	})
}
