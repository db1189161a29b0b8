package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// Publisher publishes a set of keys, which may have several givers, to every replica
// of istiod. Its methods may be called from any goroutine.
type Publisher struct {
	o              Options
	running        atomic.Bool
	desiredChanged chan struct{} // the set changed

	mu              sync.Mutex        // guards what follows
	setsByGiver     map[string]keySet // by giver
	desired         keySet            // all of them as one; nil before the first Set
	encoded         *encodedKeys      // of the last desired; nil before
	encodedReplaced chan struct{}     // closed once newest is replaced
	replicas        map[string]*ReplicaStatus
	listErr         string
}

// New returns a publisher that does nothing before Run. The error names the invalid
// option.
func New(o Options) (*Publisher, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.setDefaults()
	o.Node = proto.CloneOf(o.Node)
	if !o.Provider {
		addMark(o.Node)
	}
	return &Publisher{
		o: o, desiredChanged: make(chan struct{}, 1), setsByGiver: make(map[string]keySet), encodedReplaced: make(chan struct{}), replicas: make(map[string]*ReplicaStatus),
	}, nil
}

func (p *Publisher) wake() {
	select {
	case p.desiredChanged <- struct{}{}:
	default:
	}
}

// Run publishes until ctx ends; then istiod forgets the keys. It returns nil once
// every goroutine of the publisher ended and every connection was released, and may
// be called again then.
func (p *Publisher) Run(ctx context.Context) error {
	if p.running.Swap(true) {
		return errors.New("keys: Run is in progress")
	}
	defer p.running.Store(false)
	var group sync.WaitGroup
	defer p.clearStatus()
	defer group.Wait()
	p.wake() // for sets from before Run
	listings := make(chan debug.Listing)
	group.Go(func() { debug.List(ctx, p.o.Replicas, p.o.Interval, p.o.Timeout, listings) })
	running := make(map[string]context.CancelFunc)
	debounce := time.NewTimer(0)
	debounce.Stop()
	defer debounce.Stop()
	for waiting := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-p.desiredChanged:
			if !waiting {
				debounce.Reset(p.o.Debounce)
				waiting = true
			}
		case <-debounce.C:
			waiting = false
			p.encodeDesired()
		case l := <-listings:
			if p.setListErr(l.Err) {
				p.followReplicas(ctx, &group, running, l.Replicas)
			}
		}
	}
}

// encodeDesired makes a publication of the desired set, for every replica to announce.
func (p *Publisher) encodeDesired() {
	p.mu.Lock()
	desired, before := p.desired, p.encoded // neither is written again
	p.mu.Unlock()
	if desired == nil {
		return // nothing was set yet
	}
	next, err := encodeKeys(desired, p.o.Node, p.o.MaxBytes)
	if err != nil {
		p.o.Log.Error("keys not published, those before are kept", "err", err)
		return
	}
	if next.equal(before) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.encoded = next
	close(p.encodedReplaced)
	p.encodedReplaced = make(chan struct{})
}

// latest returns what is to be announced, nil before the first Set, and a channel
// that is closed once it is replaced.
func (p *Publisher) latest() (*encodedKeys, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.encoded, p.encodedReplaced
}

// setListErr records the error of a listing and reports whether there is none.
func (p *Publisher) setListErr(err error) bool {
	text := ""
	if err != nil {
		text = fmt.Sprintf("keys: replicas of istiod: %v; check the address of istiod", err)
	}
	p.mu.Lock()
	before := p.listErr
	p.listErr = text
	p.mu.Unlock()
	if text != "" && text != before {
		p.o.Log.Warn("replicas not listed, keys stay with those known", "err", text)
	}
	if text == "" && before != "" {
		p.o.Log.Info("replicas listed again")
	}
	return err == nil
}

// followReplicas starts to publish to replicas that are new, and stops for those that are no
// longer listed.
func (p *Publisher) followReplicas(ctx context.Context, group *sync.WaitGroup, running map[string]context.CancelFunc, listed []string) {
	for address, stop := range running {
		if slices.Contains(listed, address) {
			continue
		}
		stop()
		delete(running, address)
		p.mu.Lock()
		delete(p.replicas, address)
		p.mu.Unlock()
		p.o.Log.Info("replica of istiod gone, keys no longer published to it", "replica", address)
	}
	for _, address := range listed {
		if running[address] != nil {
			continue
		}
		p.mu.Lock()
		p.replicas[address] = &ReplicaStatus{Replica: address, Since: time.Now()}
		p.mu.Unlock()
		ctx, stop := context.WithCancel(ctx)
		running[address] = stop
		group.Go(func() { newReplicaPublisher(p, address).run(ctx) })
	}
}

// keySet is the host address of each key.
type keySet = map[naming.ServiceKey]naming.HostAddress

// Set makes these the published keys; without any, `{}` is published. It copies the
// set and never blocks. Of several sets in quick succession the last is announced.
// Before the first Set nothing is.
func (p *Publisher) Set(hosts map[naming.ServiceKey]naming.HostAddress) { p.SetOf("", hosts) }

// SetOf makes these the keys of one giver. The keys of all givers are published as
// one set. If two give the same key, the first giver by name counts: a node can
// publish one host per key, and every replica has to get the same.
func (p *Publisher) SetOf(giver string, hosts map[naming.ServiceKey]naming.HostAddress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, known := p.setsByGiver[giver]; known && maps.Equal(old, hosts) {
		return
	}
	own := make(keySet, len(hosts))
	maps.Copy(own, hosts)
	p.setsByGiver[giver] = own
	p.mergeSets()
}

// Only removes the keys of all givers but these.
func (p *Publisher) Only(givers ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.setsByGiver)
	maps.DeleteFunc(p.setsByGiver, func(giver string, _ keySet) bool { return !slices.Contains(givers, giver) })
	if len(p.setsByGiver) < before {
		p.mergeSets()
	}
}

// mergeSets makes one set of all. The caller holds mu.
func (p *Publisher) mergeSets() {
	all := make(keySet)
	for _, giver := range slices.Backward(slices.Sorted(maps.Keys(p.setsByGiver))) {
		maps.Copy(all, p.setsByGiver[giver])
	}
	if p.desired != nil && maps.Equal(p.desired, all) {
		return
	}
	p.desired = all
	p.wake()
}

// Status is the status of the publication.
type Status struct {
	Keys     int             `json:"keys"`  // to be published
	Nodes    int             `json:"nodes"` // that publish them; 0 before the first Set
	Replicas []ReplicaStatus `json:"replicas"`
	Err      string          `json:"error,omitempty"` // why the replicas could not be listed last
}

// ReplicaStatus is the status of the publication at one replica of istiod.
type ReplicaStatus struct {
	Replica   string    `json:"replica"`
	Connected bool      `json:"connected"` // every node has a stream that was answered
	Keys      int       `json:"keys"`      // published now
	Since     time.Time `json:"since"`     // when Connected last changed
	Err       string    `json:"error,omitempty"`
}

// Status returns the status of the publication; it may be called at any time.
func (p *Publisher) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{Replicas: make([]ReplicaStatus, 0, len(p.replicas)), Err: p.listErr}
	if p.encoded != nil {
		s.Keys, s.Nodes = p.encoded.keys, len(p.encoded.nodes)
	}
	for _, r := range p.replicas {
		s.Replicas = append(s.Replicas, *r)
	}
	slices.SortFunc(s.Replicas, func(a, b ReplicaStatus) int { return cmp.Compare(a.Replica, b.Replica) })
	return s
}

// updateStatus changes the status of a replica, if it is still listed.
func (p *Publisher) updateStatus(address string, change func(s *ReplicaStatus)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.replicas[address]
	if s == nil {
		return
	}
	before := s.Connected
	change(s)
	if s.Connected != before {
		s.Since = time.Now()
	}
}

// clearStatus removes the status of every replica: none is published to any more.
func (p *Publisher) clearStatus() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.replicas)
}
