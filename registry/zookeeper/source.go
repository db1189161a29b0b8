package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

// Format is a format that a Source reads: where its entries are stored, and how they are
// decoded.
type Format interface {
	Layout

	// Kind is the Group.Kind of its groups.
	Kind() string

	// Place returns the place of the services that it decodes.
	Place() registry.Place

	// Decode returns the services that entries report. An entry that cannot be decoded is
	// returned with its error, and does not affect others.
	Decode(entries, extras []registry.Entry) ([]*registry.Service, []metadata.DecodeError)
}

// Ruled is implemented by formats whose consumers follow rules that a Source ignores.
type Ruled interface {
	// Rules returns the paths whose nodes are rules for the services in a parent of this
	// name.
	Rules(name string) []string
}

// SourceOptions tune a Source.
type SourceOptions struct {
	Formats  []Format
	Interest *registry.Interest // names of parents, instead of a list of the roots; nil: all
	Log      *slog.Logger       // nil: none

	// Asker fetches the documents that ZooKeeper does not store, or all documents if
	// Elsewhere is set; nil: they are not fetched.
	Asker     dependency.Asker
	Elsewhere bool

	// Client returns the client that the source reads over, for a process that also writes
	// over its session. It is called again after an error. The caller closes the client
	// after Run. Nil: the source makes its own connections.
	Client func() (*Client, error)
}

// Source reports to a table what providers register in ZooKeeper. It watches the parents of
// its formats over its own connection. After a reconnect it reads all of them again, because
// watches end with their connection.
//
// If a parent is denied, or the root of a format is denied or was deleted, its services are
// kept and unknown. All other services are kept up to date. A deleted root does not count as
// empty, because an operator may have deleted it by mistake.
type Source struct {
	conn Options
	opts SourceOptions

	rechecks chan struct{}

	mu    sync.Mutex
	state State
}

// NewSource returns a source. It fails if the options cannot be used.
func NewSource(conn Options, opts SourceOptions) (*Source, error) {
	if len(opts.Formats) == 0 {
		return nil, errors.New("zookeeper: a source without a format")
	}
	for _, f := range opts.Formats {
		if strings.Count(f.Parents(), "*") != 1 {
			return nil, fmt.Errorf("zookeeper: format %s: parents must have one * (got %q)", f.Kind(), f.Parents())
		}
	}
	if _, _, err := addresses(conn.Servers); err != nil {
		return nil, err
	}
	defaultTo(&opts.Log, slog.New(slog.DiscardHandler))
	s := &Source{conn: conn, opts: opts, rechecks: make(chan struct{}, 1)}
	observe := conn.Observe
	s.conn.Observe = func(state State) {
		s.mu.Lock()
		state = s.state.followedBy(state)
		s.state = state
		s.mu.Unlock()
		if observe != nil {
			observe(state)
		}
	}
	return s, nil
}

// followedBy returns the state of the next client of a source, with the sessions of all its
// clients. Before that client has connected, it has the last session.
func (s State) followedBy(next State) State {
	sessions := s.Sessions
	if next.Session != 0 && next.Session != s.Session {
		sessions++
	}
	next.Sessions = sessions
	if next.Session == 0 {
		next.Session, next.Since = s.Session, s.Since
	}
	return next
}

// State returns the state of the connection.
func (s *Source) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Recheck starts a full read over a new connection. It does not block.
func (s *Source) Recheck() { wake(s.rechecks) }

// Run implements registry.Source.
func (s *Source) Run(ctx context.Context, table *registry.Table) error {
	r := newSourceRun(s, table)
	table.Stale(fmt.Errorf("not read yet: connecting to %s", s.conn.Servers))
	for ctx.Err() == nil {
		began := time.Now()
		r.answered = time.Time{}
		if err := r.connection(ctx); ctx.Err() == nil {
			r.connectionLost(ctx, err, time.Since(began))
		}
	}
	return nil
}

const (
	collectTime    = 10 * time.Millisecond // wait after a change for further changes
	verifyInterval = 5 * time.Minute       // of full reads without a change

	retryInterval     = 15 * time.Second // between attempts after a refusal
	oversizedInterval = 90 * time.Second // after several refusals because of the size

	documentsTimeout = 10 * time.Second // of the wait for documents at the first read

	unusedWatches = 256 // bound of a connection
)

// errRecheck means that Recheck was called.
var errRecheck = errors.New("full read requested")

// A sourceRun is the state of one Run, owned by its goroutine. Other goroutines pass their
// results to it.
type sourceRun struct {
	*Source
	roots     []*root
	documents *documents
	failures  int    // connections in a row that ended too soon
	avoid     string // server that the next connection does not use; empty: none

	table       *registry.Table
	tableWriter *registry.TableWriter

	// For one connection.
	tree     *treeReader
	answered time.Time // of the first answer of the server; zero: none
	complete bool      // the table has everything that this connection read
	reread   bool      // everything has to be read again
}

func newSourceRun(s *Source, table *registry.Table) *sourceRun {
	r := &sourceRun{Source: s, table: table}
	for _, f := range s.opts.Formats {
		r.roots = append(r.roots, newRoot(f))
	}
	r.documents = newDocuments(r.roots, s.opts, table.Reserve)
	r.tableWriter = registry.NewTableWriter(table, s.opts.Interest, r.stateOf)
	return r
}

// connectionLost reports the end of a connection and waits before the next one. The first
// failure in a row is a warning. If the connection lasted after the first answer, the next
// one follows at once. After an attempt that took long it follows soon, because the client
// dialed all that time.
func (r *sourceRun) connectionLost(ctx context.Context, err error, took time.Duration) {
	r.table.Stale(err)
	wait := registry.Backoff{Min: 100 * time.Millisecond, Max: 30 * time.Second}
	if took >= paceReset {
		wait.Max = time.Second
	}
	lasted := !r.answered.IsZero() && time.Since(r.answered) >= paceReset
	if lasted {
		r.failures = 0
	}
	r.failures++
	level := slog.LevelDebug
	if r.failures == 1 {
		level = slog.LevelWarn
	}
	if lasted {
		r.opts.Log.Log(ctx, level, "zookeeper connection lost, reconnecting", "err", err)
		return
	}
	pause := wait.Spread(r.failures)
	r.opts.Log.Log(ctx, level, "zookeeper not read, retrying", "retry_in", pause, "err", err)
	registry.Sleep(ctx, pause)
}

// connection reads and follows the tree over one connection, and returns why it ended.
func (r *sourceRun) connection(ctx context.Context) error {
	outer := ctx
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	select {
	case <-r.rechecks: // this connection reads everything
	default:
	}
	w, closed, err := r.watcher(end) //nolint:contextcheck // its client ends by closed, below
	if err != nil {
		return err
	}
	defer func() { closed(outer.Err() == nil && !errors.Is(context.Cause(ctx), errLost)) }()
	r.table.Dialed()
	r.tree = &treeReader{watcher: w, opts: &r.opts}
	if err := w.begin(ctx); err != nil {
		return err
	}
	r.answered = time.Now()
	r.table.Dialed()
	r.complete = false
	r.documents.connect(w)
	defer r.documents.fetcher.Wait()
	defer end(nil)
	for {
		if err := r.readAll(ctx); err != nil {
			return err
		}
		if err := r.follow(ctx); err != nil {
			return err
		}
	}
}

// watcher returns a watcher over the next connection, and a function that ends it, see
// share. It calls end when the connection has ended.
func (r *sourceRun) watcher(end context.CancelCauseFunc) (w *watcher, closed func(connected bool), err error) {
	events := newWatchEvents(make(chan struct{}, 1))
	if r.opts.Client == nil {
		if w, err = newWatcher(r.connectionOptions(), events, end); err != nil {
			return nil, nil, err
		}
		return w, func(bool) { w.client.Close() }, nil
	}
	client, err := r.opts.Client()
	if err != nil {
		return nil, nil, err
	}
	observe := r.observer()
	w, closed = share(client, &follower{events, end, observe})
	observe(client.State())
	return w, closed, nil
}

// observer returns the function that is called with the states of a connection.
func (r *sourceRun) observer() func(State) {
	return func(state State) {
		r.conn.Observe(state)
		if state.Sessions == 0 && state.LastError != "" { // show it before the first request times out
			r.table.Stale(fmt.Errorf("zookeeper %s: %s", state.Server, state.LastError))
		}
	}
}

// connectionOptions returns the options of the next connection. After Recheck it uses another
// server if there are several, so that no server confirms its own answers.
func (r *sourceRun) connectionOptions() Options {
	o, avoid := r.conn, r.avoid
	r.avoid = ""
	o.Observe = r.observer()
	servers, chroot, err := addresses(o.Servers)
	others := slices.DeleteFunc(servers, func(s string) bool { return s == avoid })
	if err != nil || avoid == "" || len(others) == 0 {
		return o // dial returns the error, if there is one
	}
	others[len(others)-1] += chroot
	o.Servers = others
	return o
}

// follow applies changes until the connection ends, and returns why it ended; nil if
// everything has to be read again.
func (r *sourceRun) follow(ctx context.Context) error {
	verify, retry, fetchDue := time.NewTimer(verifyInterval), time.NewTicker(retryInterval), time.NewTimer(0)
	defer verify.Stop()
	defer retry.Stop()
	defer fetchDue.Stop()
	var last time.Time // the first change is applied at once, and those that follow it together
	for !r.reread {
		r.documents.fetch(ctx, fetchDue)
		var err error
		select {
		case <-ctx.Done():
			return fmt.Errorf("zookeeper: %w", context.Cause(ctx))
		case <-verify.C:
			return r.checkWatches()
		case <-r.rechecks:
			r.avoid = r.tree.client.State().Server
			return errRecheck
		case <-retry.C:
			err = r.retry(ctx)
		case <-r.opts.Interest.Changed():
			err = r.interestChanged(ctx)
		case <-fetchDue.C:
		case result := <-r.documents.fetcher.Results():
			r.fetched(result)
		case <-r.tree.events.ready:
			registry.Sleep(ctx, collectTime-time.Since(last))
			last = time.Now()
			err = r.applyEvents(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkWatches returns an error, which ends the connection, if most of its watches are
// obsolete: a watch cannot be removed, and uses memory of the server.
func (r *sourceRun) checkWatches() error {
	used := len(r.documents.awaited)
	for _, root := range r.roots {
		used += 2
		for _, p := range root.parents {
			used += 2 + len(p.nodes)
		}
	}
	if armed := r.tree.events.armedCount(); armed > 2*used+unusedWatches {
		return fmt.Errorf("%d of %d watches are obsolete", armed-used, armed)
	}
	return nil
}

// applyEvents reads the nodes of which the watches reported changes.
func (r *sourceRun) applyEvents(ctx context.Context) error {
	paths, broken := r.tree.events.drain()
	if state := r.tree.client.State(); broken || !state.Connected {
		return fmt.Errorf("zookeeper: connection lost: %s", cmp.Or(state.LastError, "closed by the server"))
	}
	for _, root := range r.roots {
		if err := r.readChanged(ctx, root, paths); err != nil {
			return err
		}
	}
	r.documents.changed(paths)
	return nil
}

// fetched applies the result of fetching a document.
func (r *sourceRun) fetched(result dependency.Result) {
	if !r.documents.accept(result) || !r.complete {
		return
	}
	for _, root := range r.roots {
		if p := root.groups[result.Ref.Group]; p != nil {
			r.publish(p)
			return
		}
	}
}
