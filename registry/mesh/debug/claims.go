package debug

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
)

// claimSet remembers who claimed what and decides when a claim is over. It does
// no I/O and knows the time from its caller.
type claimSet struct {
	grace, connectionGrace time.Duration

	claims map[claimKey]*claim
	// Before hold, no claim goes whose connection went: an istiod came up and
	// its clients may not have come back yet.
	hold time.Time
	next time.Time // when the next claim is over; zero: none by time alone
	gone int       // claims that nobody makes, and that are not over
}

// mostGone is how many claims are kept that nobody makes: while a replica does
// not answer nobody can tell which of them are over.
const mostGone = 10000

type claimKey struct {
	node    string
	key     naming.ServiceKey
	address naming.HostAddress
}

// claim is what is known of a claim.
type claim struct {
	client   string    // the connection that said it last
	gone     time.Time // since when nobody says it; zero: it is said
	replaced bool      // a connection of the node lives and does not say it
}

// reliability is how far the parts may be relied on.
type reliability struct {
	complete bool      // every listed replica answered at some time
	fresh    bool      // every listed replica answered last time
	asOf     time.Time // since when nothing older was read from those that answered
}

// node is what the connections of one node say together.
type node struct {
	keys       map[naming.ServiceKey]bool
	registered bool // one of them told what it provides
	unread     bool // one of them told what cannot be read
	unreadKeys []naming.ServiceKey
}

func newLedger(grace, connectionGrace time.Duration) *claimSet {
	return &claimSet{grace: grace, connectionGrace: connectionGrace, claims: make(map[claimKey]*claim)}
}

// update takes over what all clients say now and drops the claims that are
// over.
func (l *claimSet) update(clients iter.Seq[*client], known reliability, now time.Time) {
	nodes := make(map[string]*node)
	current := make(map[claimKey]bool)
	for c := range clients {
		if c.publication == nil {
			continue
		}
		n := nodes[c.node]
		if n == nil {
			n = &node{keys: make(map[naming.ServiceKey]bool)}
			nodes[c.node] = n
		}
		n.add(c.publication)
		for key, address := range c.publication.Hosts {
			k := claimKey{node: c.node, key: key, address: address}
			current[k] = true
			l.add(k, c.id)
		}
	}
	l.next = time.Time{}
	for k, s := range l.claims {
		if !current[k] {
			l.judge(k, s, cmp.Or(nodes[k.node], new(node)), known, now)
		}
	}
	if l.gone = len(l.claims) - len(current); l.gone > mostGone {
		l.thin(current)
	}
}

// thin drops claims that nobody makes: of those that map a key to the same
// address all but the one that went last, and then the oldest.
func (l *claimSet) thin(current map[claimKey]bool) {
	var gone []claimKey
	for k, s := range l.claims {
		if !current[k] && !s.gone.IsZero() { // else its client is there and cannot be read
			gone = append(gone, k)
		}
	}
	slices.SortFunc(gone, func(a, b claimKey) int {
		return cmp.Or(l.claims[b].gone.Compare(l.claims[a].gone), cmp.Compare(a.node, b.node))
	})
	kept := make(map[claimKey]bool, mostGone)
	for _, k := range gone {
		if mapped := (claimKey{key: k.key, address: k.address}); kept[mapped] || len(kept) == mostGone {
			delete(l.claims, k)
		} else {
			kept[mapped] = true
		}
	}
	l.gone = len(l.claims) - len(current)
}

func (l *claimSet) add(k claimKey, client string) {
	s := l.claims[k]
	if s == nil {
		s = new(claim)
		l.claims[k] = s
	}
	*s = claim{client: client}
}

// judge decides on a claim that nobody makes any more. What a connected client
// takes back is over after the grace, and at once where it says another
// address of the key; what went with its connection waits for its return. Time
// alone ends nothing: it takes a reading from after the end.
func (l *claimSet) judge(k claimKey, s *claim, n *node, known reliability, now time.Time) {
	if n.unread || slices.Contains(n.unreadKeys, k.key) {
		*s = claim{client: s.client} // nobody can tell
		return
	}
	if s.gone.IsZero() {
		s.gone = now
	}
	if n.registered && !s.replaced {
		s.replaced, s.gone = true, now
	}
	over := l.end(s)
	if n.keys[k.key] {
		over = time.Time{}
	}
	switch {
	case !known.complete, !known.fresh && !s.replaced:
	case !known.asOf.Before(over):
		delete(l.claims, k)
	case l.next.IsZero() || over.Before(l.next):
		l.next = over
	}
}

// end returns when a claim that nobody makes is over.
func (l *claimSet) end(s *claim) time.Time {
	if s.replaced {
		return s.gone.Add(l.grace)
	}
	if over := s.gone.Add(l.connectionGrace); over.After(l.hold) {
		return over
	}
	return l.hold
}

func (n *node) add(p *metadata.Publication) {
	n.registered = n.registered || !p.Silent && !p.Unread
	n.unread = n.unread || p.Unread
	n.unreadKeys = append(n.unreadKeys, p.UnreadKeys...)
	for key := range p.Hosts {
		n.keys[key] = true
	}
}

// mapping returns what holds at present.
func (l *claimSet) mapping() metadata.Mapping {
	return metadata.NewMapping(func(yield func(metadata.Claim) bool) {
		for k, s := range l.claims {
			if !yield(metadata.Claim{Key: k.key, Address: k.address, Client: s.client}) {
				return
			}
		}
	})
}
