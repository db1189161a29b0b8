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

// Publisher publishes a set of keys to every replica of istiod. Several contributors may
// contribute to the set. Its methods may be called from any goroutine.
type Publisher struct {
	o              Options // immutable
	running        atomic.Bool
	desiredChanged chan struct{} // signals that desired may have changed

	// Guarded by mu. The values of keySet and encodedKeys are immutable.
	mu                sync.Mutex
	setsByContributor map[string]keySet
	desired           keySet                    // the union of all sets; nil before the first Set
	encoded           *encodedKeys              // of desired, after the debounce; nil before
	encodedReplaced   chan struct{}             // closed when encoded is replaced
	replicas          map[string]*ReplicaStatus // the listed ones, by address
	listErr           string                    // why the replicas could not be listed last
}

// New returns a publisher that does nothing until Run. The error names the invalid option.
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
		o: o, desiredChanged: make(chan struct{}, 1), setsByContributor: make(map[string]keySet),
		encodedReplaced: make(chan struct{}), replicas: make(map[string]*ReplicaStatus),
	}, nil
}

// wake makes Run encode the desired set, after the debounce.
func (p *Publisher) wake() {
	select {
	case p.desiredChanged <- struct{}{}:
	default:
	}
}

// Run publishes until ctx ends. Then istiod forgets the keys. Run returns nil once every
// goroutine of the publisher has ended and every connection is released. It may be called
// again after that. A concurrent second call returns an error.
func (p *Publisher) Run(ctx context.Context) error {
	if p.running.Swap(true) {
		return errors.New("keys: Run is already running")
	}
	defer p.running.Store(false)
	var group sync.WaitGroup
	defer p.clearStatus()
	defer group.Wait()
	p.wake() // for sets that were added before Run
	listings := make(chan debug.Listing)
	group.Go(func() { debug.List(ctx, p.o.Replicas, p.o.Interval, p.o.Timeout, listings) })
	running := make(map[string]context.CancelFunc)
	debounce := time.NewTimer(0)
	debounce.Stop()
	defer debounce.Stop()
	for debouncing := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-p.desiredChanged:
			if !debouncing {
				debounce.Reset(p.o.Debounce)
				debouncing = true
			}
		case <-debounce.C:
			debouncing = false
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
	desired, before := p.desired, p.encoded // both immutable
	p.mu.Unlock()
	if desired == nil {
		return // before the first Set
	}
	next, err := encodeKeys(desired, p.o.Node, p.o.MaxBytes)
	if err != nil {
		p.o.Log.Error("cannot encode the keys, keeping the published ones", "err", err)
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

// latest returns the keys to announce, and a channel that is closed when they are replaced.
// They are nil before the first Set.
func (p *Publisher) latest() (*encodedKeys, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.encoded, p.encodedReplaced
}

// setListErr records and logs the error of a listing. It returns true if there is none.
func (p *Publisher) setListErr(err error) bool {
	text := ""
	if err != nil {
		text = fmt.Sprintf("keys: list the replicas of istiod: %v; check the address of istiod", err)
	}
	p.mu.Lock()
	before := p.listErr
	p.listErr = text
	p.mu.Unlock()
	if text != "" && text != before {
		p.o.Log.Warn("cannot list the replicas of istiod, publishing to the known ones", "err", text)
	}
	if text == "" && before != "" {
		p.o.Log.Info("replicas of istiod listed again")
	}
	return err == nil
}

// followReplicas starts to publish to replicas that are newly listed, and stops for those that
// are no longer listed.
func (p *Publisher) followReplicas(
	ctx context.Context, group *sync.WaitGroup, running map[string]context.CancelFunc, listed []string,
) {
	for address, stop := range running {
		if slices.Contains(listed, address) {
			continue
		}
		stop()
		delete(running, address)
		p.mu.Lock()
		delete(p.replicas, address)
		p.mu.Unlock()
		p.o.Log.Info("replica of istiod removed, no longer publishing keys to it", "replica", address)
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

// Set sets the published keys. An empty set is published as `{}`. Before the first Set, nothing
// is published. Of several sets within the debounce, the last is published. Set copies hosts
// and never blocks.
func (p *Publisher) Set(hosts map[naming.ServiceKey]naming.HostAddress) { p.SetOf("", hosts) }

// SetOf sets the keys of one contributor. The keys of all contributors are published as one set.
// If several contribute the same key, the first by name wins: a node can publish only one host
// per key, and every replica must get the same one.
func (p *Publisher) SetOf(contributor string, hosts map[naming.ServiceKey]naming.HostAddress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, known := p.setsByContributor[contributor]; known && maps.Equal(old, hosts) {
		return
	}
	own := make(keySet, len(hosts))
	maps.Copy(own, hosts)
	p.setsByContributor[contributor] = own
	p.mergeSets()
}

// Only removes the keys of all contributors except the given ones.
func (p *Publisher) Only(contributors ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.setsByContributor)
	maps.DeleteFunc(p.setsByContributor, func(contributor string, _ keySet) bool {
		return !slices.Contains(contributors, contributor)
	})
	if len(p.setsByContributor) < before {
		p.mergeSets()
	}
}

// mergeSets sets desired to the union of all sets. The caller holds mu.
func (p *Publisher) mergeSets() {
	all := make(keySet)
	for _, contributor := range slices.Backward(slices.Sorted(maps.Keys(p.setsByContributor))) {
		maps.Copy(all, p.setsByContributor[contributor])
	}
	if p.desired != nil && maps.Equal(p.desired, all) {
		return
	}
	p.desired = all
	p.wake()
}

// Status is the status of the publication.
type Status struct {
	Keys     int             `json:"keys"`  // that have to be published
	Nodes    int             `json:"nodes"` // that publish them; 0 before the first Set
	Replicas []ReplicaStatus `json:"replicas"`
	Err      string          `json:"error,omitempty"` // why the replicas could not be listed last
}

// ReplicaStatus is the status of the publication at one replica of istiod.
type ReplicaStatus struct {
	Replica   string    `json:"replica"`
	Connected bool      `json:"connected"` // every node has an answered stream
	Keys      int       `json:"keys"`      // published now
	Since     time.Time `json:"since"`     // when Connected last changed
	Err       string    `json:"error,omitempty"`
}

// Status returns the status of the publication.
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

// updateStatus changes the status of a replica, unless it is no longer listed.
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

// clearStatus removes the status of every replica, when Run ends.
func (p *Publisher) clearStatus() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.replicas)
}
