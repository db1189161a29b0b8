package debug

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
)

// claimSet records which client claims which key, and decides when a claim ends. It
// does no I/O and gets the time from its caller.
type claimSet struct {
	grace, connectionGrace time.Duration

	claims map[claimKey]*claim
	// Before notBefore, no claim ends whose connection ended: an istiod came up and
	// its clients may not have come back yet.
	notBefore   time.Time
	nextEnd     time.Time // when the next claim ends; zero: none by time alone
	absentCount int       // claims that no client makes, and that have not ended
}

// maxAbsent bounds the claims that no client makes: while a replica does not answer,
// none of them can end.
const maxAbsent = 10000

type claimKey struct {
	node    string
	key     naming.ServiceKey
	address naming.HostAddress
}

type claim struct {
	client      string    // the connection that made it last
	absentSince time.Time // since when no connection makes it; zero: one does
	withdrawn   bool      // a connection of the node is open and does not make it
}

// readingCertainty is how reliable the readings are.
type readingCertainty struct {
	complete bool      // every listed replica answered at some time
	fresh    bool      // every listed replica answered last time
	asOf     time.Time // the oldest of the last readings of those that answered
}

// nodePublication is what the connections of one nodePublication publish together.
type nodePublication struct {
	keys       map[naming.ServiceKey]bool
	registered bool // one of them published its services
	unread     bool // one of them cannot be read
	unreadKeys []naming.ServiceKey
}

func newClaimSet(grace, connectionGrace time.Duration) *claimSet {
	return &claimSet{grace: grace, connectionGrace: connectionGrace, claims: make(map[claimKey]*claim)}
}

// update applies what all clients publish now and removes the claims that ended.
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

// evict removes absent claims: of those that map a key to the same address all but
// the newest, and then the oldest.
func (s *claimSet) evict(current map[claimKey]bool) {
	var absent []claimKey
	for k, c := range s.claims {
		if !current[k] && !c.absentSince.IsZero() { // otherwise its client is there and cannot be read
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

// updateAbsent decides on a claim that no client makes. A claim that a connected
// client withdrew ends after the grace, and at once if it maps the key to another
// address. A claim whose connection ended waits for the client to come back. Time
// alone ends nothing: it requires a later reading.
func (s *claimSet) updateAbsent(k claimKey, c *claim, n *nodePublication, known readingCertainty, now time.Time) {
	if n.unread || slices.Contains(n.unreadKeys, k.key) {
		*c = claim{client: c.client} // it may still be made
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

func (s *claimSet) endOf(c *claim) time.Time {
	if c.withdrawn {
		return c.absentSince.Add(s.grace)
	}
	if end := c.absentSince.Add(s.connectionGrace); end.After(s.notBefore) {
		return end
	}
	return s.notBefore
}

func (n *nodePublication) add(p *metadata.Publication) {
	n.registered = n.registered || !p.Silent && !p.Unread
	n.unread = n.unread || p.Unread
	n.unreadKeys = append(n.unreadKeys, p.UnreadKeys...)
	for key := range p.Hosts {
		n.keys[key] = true
	}
}

func (s *claimSet) mapping() metadata.Mapping {
	return metadata.NewMapping(func(yield func(metadata.Claim) bool) {
		for k, c := range s.claims {
			if !yield(metadata.Claim{Key: k.key, Address: k.address, Client: c.client}) {
				return
			}
		}
	})
}
