package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

// Format is what a Source has to know of one format: where its entries lie
// and what they say.
type Format interface {
	Layout

	// Kind is the Group.Kind of its groups.
	Kind() string

	// Decode returns the services that entries report; an entry that cannot
	// be read is an error of its own and costs its neighbours nothing.
	Decode(entries, extras []registry.Entry) ([]*registry.Service, []metadata.DecodeError)
}

// SourceOptions tune a Source.
type SourceOptions struct {
	Formats   []Format
	Interest  *registry.Interest // names of parents, in place of listing the roots; nil: all
	ReadAhead int                // requests under way at a time; 0: 64
	Gather    time.Duration      // how long changes that follow another are gathered; 0: 10 ms
	Verify    time.Duration      // between full readings without cause; 0: 5 min
	Log       *slog.Logger       // nil: none

	Asker dependency.Asker // gets what entries need and ZooKeeper does not store; nil: nobody can be asked
}

// Source reports to a table what providers register in ZooKeeper. It watches the
// parents of its formats over a connection of its own, and reads all of them
// anew over every further one: a watch says nothing while there is none.
//
// What cannot be read costs what it holds: the services of a parent, or of a
// format whose root is denied or vanished, stay as they were and are unknown,
// and all others continue. A root that vanished is no empty one, because an
// operator's mistake looks the same.
type Source struct {
	conn Options
	opts SourceOptions

	rechecks chan struct{}

	mu    sync.Mutex
	state State
}

// NewSource returns a source. It fails where the options cannot be used.
func NewSource(conn Options, opts SourceOptions) (*Source, error) {
	if len(opts.Formats) == 0 {
		return nil, errors.New("zookeeper: a source needs a format")
	}
	for _, f := range opts.Formats {
		if strings.Count(f.Parents(), "*") != 1 {
			return nil, fmt.Errorf("zookeeper: format %s: parents %q: want one *", f.Kind(), f.Parents())
		}
	}
	if _, _, err := addresses(conn.Servers); err != nil {
		return nil, err
	}
	defaultTo(&opts.ReadAhead, readAhead)
	defaultTo(&opts.Gather, 10*time.Millisecond)
	defaultTo(&opts.Verify, 5*time.Minute)
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source{conn: conn, opts: opts, rechecks: make(chan struct{}, 1)}
	observe := conn.Observe
	s.conn.Observe = func(state State) {
		s.mu.Lock()
		s.state = state
		s.mu.Unlock()
		if observe != nil {
			observe(state)
		}
	}
	return s, nil
}

// State returns what is known of the connection.
func (s *Source) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Recheck makes everything be read anew, over a new connection. It does not
// block.
func (s *Source) Recheck() {
	select {
	case s.rechecks <- struct{}{}:
	default:
	}
}

// SourceReport is what Check found.
type SourceReport struct {
	State   State
	Parents int      // in the roots of all formats
	Absent  []string // roots that do not exist
}

// Check lists the root of every format over a connection of its own and
// returns how that connection was.
func (s *Source) Check(ctx context.Context) (SourceReport, error) {
	var r SourceReport
	client, err := Dial(s.conn) //nolint:contextcheck // it ends by Close
	if err != nil {
		return r, err
	}
	defer client.Close()
	for _, f := range s.opts.Formats {
		root, _ := parts(f)
		names, err := client.children(ctx, root)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			r.Absent = append(r.Absent, root)
		case err != nil:
			r.State = client.State()
			return r, fmt.Errorf("list %s: %w", root, err)
		}
		r.Parents += len(names)
	}
	r.State = client.State()
	return r, nil
}

// Run implements registry.Source.
func (s *Source) Run(ctx context.Context, table *registry.Table) error {
	r := newReading(s, table)
	table.Stale(fmt.Errorf("not read yet: connecting to %s", s.conn.Servers))
	for ctx.Err() == nil {
		began := time.Now()
		if err := r.connection(ctx); ctx.Err() == nil {
			r.lost(ctx, err, time.Since(began))
		}
	}
	return nil
}

// lost takes the end of a connection in and waits before the next. One that
// lasted was a good one, and the next may follow at once.
func (r *reading) lost(ctx context.Context, err error, lasted time.Duration) {
	r.table.Stale(err)
	r.wait = min(max(2*r.wait, 100*time.Millisecond), 30*time.Second)
	if lasted >= paceReset {
		r.wait = 0
	}
	r.opts.Log.Warn("zookeeper not read, trying on", "retry_in", r.wait, "err", err)
	if r.wait > 0 {
		sleep(ctx, r.wait-rand.N(r.wait/5)) //nolint:gosec // spreads load, keeps no secret
	}
}

// connection reads and follows the tree over one connection, and returns why
// it ended.
func (r *reading) connection(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	select {
	case <-r.rechecks: // this connection is what was asked for
	default:
	}
	opts := r.next()
	observe := opts.Observe
	opts.Observe = func(state State) {
		observe(state)
		if state.Sessions == 0 && state.LastError != "" { // who waits learns it before the call below has waited for its time
			r.table.Stale(fmt.Errorf("zookeeper %s: %s", state.Server, state.LastError))
		}
	}
	w, err := newWatcher(opts, newWatchEvents(make(chan struct{}, 1)), end) //nolint:contextcheck // its client ends by Close, below
	if err != nil {
		return err
	}
	defer w.client.Close()
	r.table.Dialed()
	r.watcher = w
	if err := w.begin(ctx); err != nil {
		return err
	}
	r.table.Dialed()
	r.whole, r.began = false, time.Now()
	r.fetcher = dependency.NewFetcher(r.dependencies, time.Now(), dependency.Lane{
		Limit: r.opts.ReadAhead, Has: func(ref metadata.Ref) bool { return len(r.places(ref)) > 0 }, Fetch: r.stored,
	})
	defer r.fetcher.Wait()
	defer end(nil)
	for {
		if err := r.all(ctx); err != nil {
			return err
		}
		if err := r.follow(ctx); err != nil {
			return err
		}
	}
}

// next returns the options of the next connection: one that was asked for goes
// to another server where there are several, so that none confirms itself.
func (r *reading) next() Options {
	o, avoid := r.conn, r.avoid
	r.avoid = ""
	servers, chroot, err := addresses(o.Servers)
	others := slices.DeleteFunc(servers, func(s string) bool { return s == avoid })
	if err != nil || avoid == "" || len(others) == 0 {
		return o // dial reports what is wrong with them
	}
	others[len(others)-1] += chroot
	o.Servers = others
	return o
}

// errRecheck says that a new connection was asked for.
var errRecheck = errors.New("everything is being read anew, as was asked for")

// A reading is what a source knows of the tree. Only Run's goroutine touches
// it; what runs beside it hands its results over.
type reading struct {
	*Source
	table        *registry.Table
	roots        []*root
	rows         map[registry.Name]*parentNode // the parent that each row came from
	dependencies *dependency.Set
	await        map[string]metadata.Ref // by the path at which a document may come
	wait         time.Duration           // before the next connection
	avoid        string                  // the server that it is not to be made to

	// What holds for one connection.
	*watcher
	fetcher *dependency.Fetcher
	began   time.Time
	whole   bool // the table has everything
	anew    bool // everything is to be read again
}

func newReading(s *Source, table *registry.Table) *reading {
	r := &reading{
		Source: s, table: table, rows: make(map[registry.Name]*parentNode), await: make(map[string]metadata.Ref),
		dependencies: dependency.NewSet(dependency.Options{
			Retry: registry.Backoff{Min: time.Second, Max: 30 * time.Second}, Asker: s.opts.Asker, Room: table.Beside,
		}),
	}
	for _, f := range s.opts.Formats {
		r.roots = append(r.roots, newRoot(f))
	}
	return r
}

const (
	failedAgain    = 15 * time.Second // between attempts to read what may not be read
	oversizedAgain = 90 * time.Second // after several, of what is too large to be read

	patience = 10 * time.Second // how long a first reading waits for what entries refer to

	spareWatches = 256 // that a connection may have for nothing
)

// follow takes changes in until the connection goes, and returns why; nil
// where all of it is to be read again.
func (r *reading) follow(ctx context.Context) error {
	verify, failed, due := time.NewTimer(r.opts.Verify), time.NewTicker(failedAgain), time.NewTimer(0)
	defer verify.Stop()
	defer failed.Stop()
	defer due.Stop()
	var last time.Time // the first change is taken in at once, its followers together
	for !r.anew {
		r.fetch(ctx, due)
		var err error
		select {
		case <-ctx.Done():
			return fmt.Errorf("zookeeper: %w", context.Cause(ctx))
		case <-verify.C:
			return r.endIfStaleWatches()
		case <-r.rechecks:
			r.avoid = r.client.State().Server
			return errRecheck
		case <-failed.C:
			err = r.retry(ctx)
		case <-r.opts.Interest.Changed():
			err = r.wish(ctx)
		case <-due.C:
		case result := <-r.fetcher.Results():
			r.fetched(result)
		case <-r.events.ready:
			sleep(ctx, r.opts.Gather-time.Since(last))
			last = time.Now()
			err = r.applyEvents(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// endIfStaleWatches ends a connection of which most watches are for what nobody asks for any
// more: a watch cannot be withdrawn, and costs the server too.
func (r *reading) endIfStaleWatches() error {
	used := len(r.await)
	for _, root := range r.roots {
		used += 2
		for _, f := range root.parents {
			used += 2 + len(f.nodes)
		}
	}
	if armed := r.events.armedCount(); armed > 2*used+spareWatches {
		return fmt.Errorf("%d of %d watches are for what is no more", armed-used, armed)
	}
	return nil
}

// applyEvents takes in what the watches reported.
func (r *reading) applyEvents(ctx context.Context) error {
	paths, broken := r.events.drain()
	if state := r.client.State(); broken || !state.Connected {
		return fmt.Errorf("zookeeper: connection lost: %s", cmp.Or(state.LastError, "the server closed it"))
	}
	for _, root := range r.roots {
		if err := r.changed(ctx, root, paths); err != nil {
			return err
		}
	}
	for _, p := range paths {
		if ref, ok := r.await[p]; ok {
			r.dependencies.Expect(time.Now(), ref)
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
