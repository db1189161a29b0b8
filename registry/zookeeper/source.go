package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Format is what a Source has to know of one format: where its entries lie
// and what they tell.
type Format interface {
	Layout

	// Kind is the Group.Kind of its groups.
	Kind() string

	// Decode returns the services that entries tell of; an entry that cannot
	// be read is a fault and costs its neighbours nothing.
	Decode(entries, extras []registry.Entry) ([]*registry.Service, []metadata.Fault)
}

// SourceOptions tune a Source.
type SourceOptions struct {
	Formats   []Format
	Interest  *registry.Interest // names of folders, in place of listing the roots; nil: all
	ReadAhead int                // requests under way at a time; 0: 64
	Gather    time.Duration      // how long changes that follow another are gathered; 0: 10 ms
	Verify    time.Duration      // between full readings without cause; 0: 5 min
	Log       *slog.Logger       // nil: none

	// Ask gets what entries need and ZooKeeper does not store. An error that
	// wraps registry.ErrRefused says that it cannot be had at all; any other,
	// that it is not known. Nil: nobody can be asked.
	Ask func(ctx context.Context, ref metadata.Ref) (string, error)
}

// Source tells a table what providers register in ZooKeeper. It watches the
// folders of its formats over a connection of its own, and reads all of them
// anew over every further one: a watch says nothing while there is none.
//
// A folder that cannot be read leaves its services as they were and makes
// them unknown; a root that vanished makes everything stale, because an
// operator's mistake looks the same as an empty registry.
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
		if strings.Count(f.Folders(), "*") != 1 {
			return nil, fmt.Errorf("zookeeper: format %s: folders %q: want one *", f.Kind(), f.Folders())
		}
	}
	if _, err := addresses(conn.Servers); err != nil {
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

// Check lists the root of every format over a connection of its own and
// returns how that connection was.
func (s *Source) Check(ctx context.Context) (State, error) {
	client, err := Dial(s.conn) //nolint:contextcheck // it ends by Close
	if err != nil {
		return State{}, err
	}
	defer client.Close()
	for _, f := range s.opts.Formats {
		root, _ := parts(f)
		if _, err := client.children(ctx, root); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return client.State(), fmt.Errorf("list %s: %w", root, err)
		}
	}
	return client.State(), nil
}

// Run implements registry.Source.
func (s *Source) Run(ctx context.Context, table *registry.Table) error {
	r := &reading{Source: s, table: table, folders: make(map[place]*folder), rows: make(map[registry.Name]place), rooted: make(map[string]bool)}
	table.Stale(errors.New("not read yet"))
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
	if lasted >= paceLived {
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
	client, err := dial(r.conn, &once{end: end}) //nolint:contextcheck // the client ends by Close, below
	if err != nil {
		return err
	}
	defer client.Close()
	r.table.Dialed()
	r.client, r.events = client, newInbox()
	defer client.subscribe(r.events)()
	for {
		if err := r.all(ctx); err != nil {
			return err
		}
		if err := r.follow(ctx); err != nil {
			return err
		}
	}
}

// errRecheck says that a new connection was asked for.
var errRecheck = errors.New("everything is being read anew, as was asked for")

// A reading is what a source knows of the tree. Only Run's goroutine and
// those it waits for touch it.
type reading struct {
	*Source
	table   *registry.Table
	client  *Client
	events  *inbox
	folders map[place]*folder
	known   map[place]*folder       // as they were before a reading
	rows    map[registry.Name]place // the folder that each row came from
	rooted  map[string]bool         // roots that existed once
	wait    time.Duration           // before the next connection
}

// A place is a folder as one format sees it: several formats may have their
// services under one root.
type place struct {
	format Format
	path   string
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.path, o.path), cmp.Compare(p.format.Kind(), o.format.Kind()))
}

// A folder is what is known of one group.
type folder struct {
	format   Format
	group    registry.Group
	services []*registry.Service
	needed   needed
	denied   error // why it could not be read
	skipped  []string
}

// follow takes changes in until the connection goes, and returns why; nil
// where all of it is to be read again without a cause.
func (r *reading) follow(ctx context.Context) error {
	verify, denied := time.NewTimer(r.opts.Verify), time.NewTicker(deniedAgain)
	defer verify.Stop()
	defer denied.Stop()
	var last time.Time // the first change is taken in at once, its followers together
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("zookeeper: %w", context.Cause(ctx))
		case <-verify.C:
			return nil
		case <-r.rechecks:
			return errRecheck
		case <-denied.C:
			if err := r.retryDenied(ctx); err != nil {
				return err
			}
			continue
		case <-r.opts.Interest.Changed():
			return nil
		case <-r.events.ready:
		}
		sleep(ctx, r.opts.Gather-time.Since(last))
		last = time.Now()
		if err := r.told(ctx); err != nil {
			return err
		}
	}
}

// told takes in what the watches told of.
func (r *reading) told(ctx context.Context) error {
	paths, broken := r.events.take()
	if state := r.client.State(); broken || !state.Connected {
		return fmt.Errorf("zookeeper: connection lost: %s", cmp.Or(state.LastError, "the server closed it"))
	}
	for _, p := range paths {
		if err := r.changed(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// deniedAgain is how often a folder is tried again that is denied, or of which
// something was not to be had that no watch tells of.
const deniedAgain = 15 * time.Second

// retryDenied reads again what is denied or lacks something.
func (r *reading) retryDenied(ctx context.Context) error {
	return r.updateAll(ctx, func(f *folder) bool { return f.denied != nil || f.needed.again() })
}

// changed reads again what a watch told of.
func (r *reading) changed(ctx context.Context, p string) error {
	for _, f := range r.opts.Formats {
		if err := r.changedIn(ctx, f, p); err != nil {
			return err
		}
	}
	return r.came(ctx, p)
}

func (r *reading) changedIn(ctx context.Context, f Format, p string) error {
	root, after := parts(f)
	if p == root {
		if err := r.again(ctx, f); err != nil {
			return err
		}
	}
	folders := []string{p, path.Dir(p)} // it came or went, or the data of a node in it changed
	if after != "" {
		folders = append(folders, p+after)
	}
	for _, folder := range folders {
		if at := (place{f, folder}); r.folders[at] != nil {
			return r.update(ctx, at)
		}
	}
	return nil
}

// again reads the list of a format's folders and those that are new in it.
func (r *reading) again(ctx context.Context, f Format) error {
	names, err := r.list(ctx, f)
	if err != nil {
		return err
	}
	here := make(map[string]bool, len(names))
	var added []string
	for _, p := range names {
		here[p] = true
		if r.folders[place{f, p}] == nil {
			added = append(added, p)
		}
	}
	if err := r.read(ctx, f, added); err != nil {
		return err
	}
	for at, old := range r.folders {
		if at.format == f && !here[at.path] {
			delete(r.folders, at)
			old.denied, old.needed = nil, needed{}
			r.unknown(old)
			r.publish(at, old, &folder{})
		}
	}
	for _, p := range added {
		r.publish(place{f, p}, nil, r.folders[place{f, p}])
	}
	return nil
}

// update reads one folder again and tells what changed in it.
func (r *reading) update(ctx context.Context, at place) error {
	old := r.folders[at]
	r.known = r.folders
	if err := r.read(ctx, at.format, []string{at.path}); err != nil {
		return err
	}
	next := r.folders[at]
	if r.opts.Interest != nil && len(next.services) == 0 && len(old.services) > 0 {
		// No watch of the root tells whether all of it vanished.
		if _, err := r.list(ctx, at.format); err != nil {
			r.folders[at] = old
			return err
		}
	}
	if next.denied == nil {
		next.services = registry.KeepEmpty(next.services, old.services)
		r.publish(at, old, next)
	}
	return nil
}

// publish tells the table what became of a folder.
func (r *reading) publish(at place, old, next *folder) {
	if old != nil {
		for _, key := range old.skipped {
			if !slices.Contains(next.skipped, key) {
				r.table.Skip(key, "")
			}
		}
	}
	there := make(map[registry.Name]bool, len(next.services))
	for _, s := range next.services {
		there[s.Name], r.rows[s.Name] = true, at
		r.table.Put(s)
	}
	if old == nil {
		return
	}
	for _, s := range old.services {
		if !there[s.Name] && r.rows[s.Name] == at {
			delete(r.rows, s.Name)
			r.table.Delete(s.Name)
		}
	}
}

// all reads everything anew and replaces what the table holds by it.
func (r *reading) all(ctx context.Context) error {
	r.events.reset()
	wanted := r.opts.Interest.Version()
	before := r.folders
	r.known, r.folders = before, make(map[place]*folder, len(before))
	for _, f := range r.opts.Formats {
		paths, err := r.list(ctx, f)
		if err == nil {
			err = r.read(ctx, f, paths)
		}
		if err != nil {
			r.folders = before
			return err
		}
	}
	clear(r.rows)
	var rows []*registry.Service
	for _, at := range slices.SortedFunc(maps.Keys(r.folders), place.compare) {
		for _, s := range r.folders[at].services {
			r.rows[s.Name] = at
			rows = append(rows, s)
		}
	}
	r.table.Replace(slices.Values(rows))
	r.opts.Interest.Told(wanted)
	return nil
}

// parts returns the folder above those of a format, and what of their paths
// comes after the part that differs.
func parts(f Folders) (root, after string) {
	root, after, _ = strings.Cut(f.Folders(), "/*")
	return cmp.Or(root, "/"), after
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
