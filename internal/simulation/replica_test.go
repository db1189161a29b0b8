package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/bridge"
	"github.com/xds-bridge/xds-bridge/internal/lease"
	"github.com/xds-bridge/xds-bridge/registry"
)

const ttl = 15 * time.Second

// A leaseRecord is the record of the lease, which the replicas share.
type leaseRecord struct {
	mu      sync.Mutex
	data    []byte
	version int
}

func (c *leaseRecord) load() ([]byte, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.data), c.now()
}

func (c *leaseRecord) save(data []byte, version string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version != c.now() {
		return registry.ErrConflict
	}
	c.data, c.version = slices.Clone(data), c.version+1
	return nil
}

func (c *leaseRecord) now() string {
	if c.version == 0 {
		return ""
	}
	return strconv.Itoa(c.version)
}

// A replica is a bridge among others: a lease, a loop, and its own view of
// the source.
type replica struct {
	w       *world
	name    string
	far     time.Duration // delay to the lease record; each replica has another, so that no two reach it at once
	elector *lease.Elector
	loop    *bridge.Loop
	view    *sourceView
	stop    func()

	mu       sync.Mutex
	noLease  bool          // the record of the lease is unreachable
	noTarget bool          // the target is unreachable
	stopped  chan struct{} // closed when a pause ends; nil: not paused
	slow     time.Duration // how long a write is in flight to the target
}

// starts starts a replica instead of another of the same number.
func (w *world) starts(number int) {
	w.started++
	r := &replica{w: w, name: fmt.Sprintf("replica-%d.%d", number, w.started), view: newView(w.source)}
	r.far = time.Duration(number+1) * 1103 * time.Microsecond
	if old := w.replicas[number]; old != nil {
		old.view.mu.Lock()
		r.view.behind, r.view.late, r.view.cut = old.view.behind, old.view.late, old.view.cut
		old.view.mu.Unlock()
	}
	r.view.unsync = w.unsync
	r.elector = lease.New(lease.Options{Store: store{r}, Target: "t", Identity: r.name, TTL: ttl, Reaches: r.reaches})
	r.loop = must(bridge.New(target{r}, []bridge.Bridge{{
		Name: "b", Table: r.view.table, Recheck: r.view.recheck, Project: project, Guard: w.guard,
	}}, bridge.Options{Target: "t", Owner: owner, Election: r.elector}))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.elector.Run(ctx) })
	running.Go(func() { r.view.run(ctx) })
	running.Go(func() { _ = r.loop.Run(ctx) })
	r.stop = sync.OnceFunc(func() {
		r.resumes()
		cancel()
		running.Wait()
	})
	w.replicas[number] = r
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (r *replica) set(change func(*replica)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// pauses delays everything that the replica sends, as when its process is stopped.
func (r *replica) pauses() {
	r.set(func(r *replica) {
		if r.stopped == nil {
			r.stopped = make(chan struct{})
		}
	})
}

func (r *replica) resumes() {
	r.set(func(r *replica) {
		if r.stopped != nil {
			close(r.stopped)
			r.stopped = nil
		}
	})
}

var errCut = errors.New("no route")

// passes waits while the replica is paused, and fails if the connection is cut.
func (r *replica) passes(ctx context.Context, cut func(*replica) bool) error {
	r.mu.Lock()
	stopped, away := r.stopped, cut(r)
	r.mu.Unlock()
	if stopped != nil {
		select {
		case <-stopped:
		case <-ctx.Done():
		}
	}
	if away {
		return errCut
	}
	return ctx.Err()
}

func (r *replica) leaseIsCut() bool { return r.noLease }

func (r *replica) targetIsCut() bool { return r.noTarget }

// reaches reports whether the target is reachable.
func (r *replica) reaches() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.noTarget
}

// A store is how a replica reaches the record of the lease.
type store struct{ r *replica }

func (s store) Load(ctx context.Context) ([]byte, string, error) {
	pause(ctx, s.r.far)
	if err := s.r.passes(ctx, (*replica).leaseIsCut); err != nil {
		return nil, "", err
	}
	data, version := s.r.w.record.load()
	return data, version, nil
}

func (s store) Save(ctx context.Context, data []byte, version string) error {
	if err := s.r.passes(ctx, (*replica).leaseIsCut); err != nil {
		return err
	}
	return s.r.w.record.save(data, version)
}

// A target is how a replica reaches the registry that it writes to, where
// each transaction is fenced by the term of the lease.
type target struct{ r *replica }

func (target) Capabilities() registry.Capabilities { return registry.Capabilities{} }

func (t target) Groups(ctx context.Context) ([]registry.Group, error) {
	if err := t.r.passes(ctx, (*replica).targetIsCut); err != nil {
		return nil, err
	}
	return t.r.w.target.Groups(ctx)
}

func (t target) Read(ctx context.Context, g registry.Group) ([]registry.Stored, error) {
	if err := t.r.passes(ctx, (*replica).targetIsCut); err != nil {
		return nil, err
	}
	return t.r.w.target.Read(ctx, g)
}

// apart returns how much longer a write takes than that of another group, so that no two
// arrive at once.
func apart(g registry.Group) time.Duration {
	return time.Duration(g.Name[1]-'0') * time.Millisecond
}

func (t target) Write(ctx context.Context, c registry.Change) error {
	lead := t.r.elector.Leadership()
	if lead.Role != bridge.RoleLeader {
		return registry.ErrFenced
	}
	t.r.mu.Lock()
	slow := t.r.slow
	t.r.mu.Unlock()
	pause(ctx, 10*time.Millisecond+apart(c.Group)+slow)
	if err := t.r.passes(context.WithoutCancel(ctx), (*replica).targetIsCut); err != nil { // a sent call arrives, whatever becomes of its sender
		return err
	}
	return t.r.w.write(context.WithoutCancel(ctx), t.r, lead.Term, c)
}
