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
)

// Publisher shows one set of keys at every replica of istiod, which several may
// give a part of. Its methods may be called from any goroutine.
type Publisher struct {
	o     Options
	runs  atomic.Bool   // in Run
	awake chan struct{} // the set changed

	mu       sync.Mutex
	sets     map[string]set // by whom they are of
	desired  set            // all of them as one; nil before the first Set
	newest   *publication   // of what was desired last; nil before
	newer    chan struct{}  // closed once newest is replaced
	replicas map[string]*ReplicaStatus
	listErr  string
}

// New returns a publisher that does nothing before Run. The error names the
// option that is wrong.
func New(o Options) (*Publisher, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.complete()
	o.Node = proto.CloneOf(o.Node)
	if !o.Provider {
		mark(o.Node)
	}
	return &Publisher{
		o: o, awake: make(chan struct{}, 1), sets: make(map[string]set), newer: make(chan struct{}), replicas: make(map[string]*ReplicaStatus),
	}, nil
}

func (p *Publisher) wake() {
	select {
	case p.awake <- struct{}{}:
	default:
	}
}

// forget drops how replicas stood: none is published to any more.
func (p *Publisher) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.replicas)
}

// Run publishes until ctx ends, with which istiod forgets the keys. It returns
// nil when every goroutine of the publisher ended and every connection was given
// back, and may be called again then.
func (p *Publisher) Run(ctx context.Context) error {
	if p.runs.Swap(true) {
		return errors.New("keys: Run is under way")
	}
	defer p.runs.Store(false)
	var group sync.WaitGroup
	defer p.forget()
	defer group.Wait()
	p.wake() // for what was set while nothing ran
	listings := make(chan listing)
	group.Go(func() { p.list(ctx, listings) })
	running := make(map[string]context.CancelFunc)
	gather := time.NewTimer(0)
	gather.Stop()
	defer gather.Stop()
	for gathering := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-p.awake:
			if !gathering {
				gather.Reset(p.o.Gather)
				gathering = true
			}
		case <-gather.C:
			gathering = false
			p.advance()
		case l := <-listings:
			if p.listed(l) {
				p.follow(ctx, &group, running, l.replicas)
			}
		}
	}
}

// advance makes a publication of what is desired, for every replica to announce.
func (p *Publisher) advance() {
	p.mu.Lock()
	desired, before := p.desired, p.newest // a set is never written again
	p.mu.Unlock()
	if desired == nil {
		return // nothing was set yet
	}
	next, err := publish(desired, p.o.Node, p.o.MaxBytes)
	if err != nil {
		p.o.Log.Error("keys not published, those before stay", "err", err)
		return
	}
	if next.same(before) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest = next
	close(p.newer)
	p.newer = make(chan struct{})
}

// latest returns what is to be announced, nil before the first Set, and what is
// closed once it is something else.
func (p *Publisher) latest() (*publication, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.newest, p.newer
}

// listing is what Replicas returned.
type listing struct {
	replicas []string
	err      error
}

// list asks for the replicas, sooner after a failure, until ctx ends.
func (p *Publisher) list(ctx context.Context, listings chan<- listing) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		l := p.ask(ctx)
		select {
		case <-ctx.Done():
			return
		case listings <- l:
		}
		timer.Reset(p.o.Interval)
		if l.err != nil {
			timer.Reset(min(p.o.Interval, time.Second))
		}
	}
}

func (p *Publisher) ask(ctx context.Context) listing {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	replicas, err := p.o.Replicas(ctx)
	if err == nil && len(replicas) == 0 {
		err = errors.New("no replica of istiod is listed")
	}
	if err != nil {
		return listing{err: fmt.Errorf("keys: replicas of istiod: %w; check the address of istiod", err)}
	}
	return listing{replicas: replicas}
}

// listed notes what became of a listing and says whether it can be followed.
func (p *Publisher) listed(l listing) bool {
	text := ""
	if l.err != nil {
		text = l.err.Error()
	}
	p.mu.Lock()
	before := p.listErr
	p.listErr = text
	p.mu.Unlock()
	if l.err != nil && text != before {
		p.o.Log.Warn("replicas not listed, keys stay with those known", "err", l.err)
	}
	return l.err == nil
}

// follow starts what publishes to replicas that came and ends it for those that
// went.
func (p *Publisher) follow(ctx context.Context, group *sync.WaitGroup, running map[string]context.CancelFunc, listed []string) {
	for address, end := range running {
		if slices.Contains(listed, address) {
			continue
		}
		end()
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
		ctx, end := context.WithCancel(ctx)
		running[address] = end
		group.Go(func() { newReplica(p, address).run(ctx) })
	}
}

// A set is keys and where each is found.
type set = map[naming.ServiceKey]naming.HostAddress

// Set makes these the keys that are shown, all of them and no others, where
// nobody else gives any; none are shown as `{}`. It copies the set and never
// blocks; of several sets in quick succession the last is announced. Before the
// first Set nothing is.
func (p *Publisher) Set(hosts map[naming.ServiceKey]naming.HostAddress) { p.SetOf("", hosts) }

// SetOf makes these the keys that one of several gives. Shown are those of all
// as one set, so that a change of any is one change. Where two give the same
// key, that of the name that comes first counts: a node can show one host of a
// key, and every replica has to show the same.
func (p *Publisher) SetOf(name string, hosts map[naming.ServiceKey]naming.HostAddress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, known := p.sets[name]; known && maps.Equal(old, hosts) {
		return
	}
	own := make(set, len(hosts))
	maps.Copy(own, hosts)
	p.sets[name] = own
	p.unite()
}

// Only forgets what all but these gave.
func (p *Publisher) Only(names ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.sets)
	maps.DeleteFunc(p.sets, func(name string, _ set) bool { return !slices.Contains(names, name) })
	if len(p.sets) < before {
		p.unite()
	}
}

// unite makes one set of all. The caller holds mu.
func (p *Publisher) unite() {
	all := make(set)
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(p.sets))) {
		maps.Copy(all, p.sets[name])
	}
	if p.desired != nil && maps.Equal(p.desired, all) {
		return
	}
	p.desired = all
	p.wake()
}

// Status is how the publication stands.
type Status struct {
	Keys     int             `json:"keys"`  // that are to be shown
	Nodes    int             `json:"nodes"` // that show them; 0 before the first Set
	Replicas []ReplicaStatus `json:"replicas"`
	Err      string          `json:"error,omitempty"` // why the replicas could not be listed last
}

// ReplicaStatus is how the publication is at one replica of istiod.
type ReplicaStatus struct {
	Replica   string    `json:"replica"`
	Connected bool      `json:"connected"` // every node has a stream that was answered
	Keys      int       `json:"keys"`      // that are shown now
	Since     time.Time `json:"since"`     // when Connected last changed
	Err       string    `json:"error,omitempty"`
}

// Status returns how the publication stands; it may be called at any time.
func (p *Publisher) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{Replicas: make([]ReplicaStatus, 0, len(p.replicas)), Err: p.listErr}
	if p.newest != nil {
		s.Keys, s.Nodes = p.newest.keys, len(p.newest.parts)
	}
	for _, r := range p.replicas {
		s.Replicas = append(s.Replicas, *r)
	}
	slices.SortFunc(s.Replicas, func(a, b ReplicaStatus) int { return cmp.Compare(a.Replica, b.Replica) })
	return s
}

// updateStatus notes how a replica stands. One that is not listed any more has no
// status.
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
