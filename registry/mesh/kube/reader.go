package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry/mesh"
	"github.com/xds-bridge/xds-bridge/registry/mesh/debug"
)

// Options say what is read, and how.
type Options struct {
	Rules

	Config     *rest.Config // how the API server is reached, and as whom
	Namespaces []string     // none: all
	Nodes      bool         // read Nodes, which tell region and zone
	Istio      bool         // read ServiceEntries and WorkloadEntries
	MaxReceive int64        // bytes of one answer; 0: no bound
	Log        *slog.Logger // nil: nothing is logged
}

// Reader keeps a World up to date. It implements mesh.ClusterReader. Its methods
// may be called from any goroutine.
type Reader struct {
	o       Options
	wake    chan struct{}
	recheck chan struct{}

	mu    sync.Mutex // guards what follows
	world *World
	feeds []*feed
}

// New checks the options and returns a reader that does nothing before Run.
func New(o Options) (*Reader, error) {
	switch {
	case o.Config == nil:
		return nil, errors.New("kube: Config is not set")
	case o.Reading == nil:
		return nil, errors.New("kube: Reading is not set")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if len(o.Namespaces) == 0 {
		o.Namespaces = []string{""}
	}
	o.Namespaces = slices.Compact(slices.Sorted(slices.Values(o.Namespaces)))
	o.Domain = cmp.Or(o.Domain, "cluster.local")
	r := &Reader{
		o: o, wake: make(chan struct{}, 1), recheck: make(chan struct{}, 1),
		world: NewWorld(o.Rules),
	}
	for _, n := range o.Namespaces {
		r.world.Hide(n)
	}
	for _, kind := range o.resources() {
		spaces := o.Namespaces
		if kind.cluster {
			spaces = []string{""}
		}
		for _, n := range spaces {
			r.feeds = append(r.feeds, &feed{reader: r, resource: kind, namespace: n, objects: make(map[ref]struct{})})
		}
	}
	return r, nil
}

// Recheck implements mesh.ClusterReader.
func (r *Reader) Recheck() {
	select {
	case r.recheck <- struct{}{}:
	default:
	}
}

// Mapping returns a reader of the service keys alone, for endpoints that are read
// elsewhere. Of the reader either it is run, or what it returns.
func (r *Reader) Mapping() mesh.MappingReader { return keysReader{r} }

type keysReader struct{ reader *Reader }

// Run implements mesh.MappingReader.
func (k keysReader) Run(ctx context.Context, changed func(debug.Snapshot)) error {
	return k.reader.Run(ctx, func(c mesh.Changes) {
		if c.Mapping != nil {
			changed(*c.Mapping)
		}
	})
}

// Run implements mesh.ClusterReader. It may be called once.
func (r *Reader) Run(ctx context.Context, changed func(mesh.Changes)) error {
	t := &teller{reader: r, changed: changed}
	for ctx.Err() == nil {
		if err := r.connection(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

var errRechecking = errors.New("reading everything anew over a new connection")

// connection reads over one connection until ctx ends or a new one is asked for.
func (r *Reader) connection(ctx context.Context, t *teller) error {
	clients, err := r.o.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.Logger{})) // what it would print is in the status
	var following sync.WaitGroup
	defer clients.transport.CloseIdleConnections()
	defer following.Wait()
	defer cancel()
	t.connect()
	r.mu.Lock()
	for _, f := range r.feeds {
		f.client, f.listed, f.watched, f.err = clients.byVersion[f.resource.GroupVersion], false, false, nil
	}
	r.mu.Unlock()
	for _, f := range r.feeds {
		following.Go(func() { f.run(ctx) })
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.recheck:
			return nil
		case <-r.wake:
			t.tell()
		}
	}
}

// change changes the world, and has it told.
func (r *Reader) change(do func(*World)) {
	r.mu.Lock()
	do(r.world)
	r.mu.Unlock()
	r.signal()
}

func (r *Reader) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// The transitions of a feed.

// begin notes that a full reading begins: what is not there afterwards was found
// missing, and not told to be gone.
func (f *feed) begin() {
	f.reader.change(func(*World) { f.watched, f.missing = f.absent, false })
}

// follows notes that all is told from now on as it happens.
func (f *feed) follows() {
	f.reader.change(func(*World) {
		if f.err != nil {
			f.reader.o.Log.Info("kubernetes objects are followed again", "resource", f.resource.String(), "namespace", f.namespace)
		}
		f.watched, f.err, f.absent = true, nil, false
	})
}

// ended notes that nothing is told as it happens until it is followed again.
func (f *feed) ended() {
	f.reader.change(func(*World) { f.watched = f.absent })
}

// failed notes why a feed is not followed.
func (f *feed) failed(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	err = f.explain(verb, err)
	f.reader.change(func(*World) {
		if f.err == nil || f.err.Error() != err.Error() {
			f.reader.o.Log.Warn("kubernetes objects cannot be read", "resource", f.resource.String(), "namespace", f.namespace, "err", err)
		}
		if f.err == nil {
			f.since = time.Now()
		}
		f.watched, f.missing, f.err = false, true, err
	})
}

// isAbsent notes that the API has no such kind: that says nothing of one that had
// objects.
func (f *feed) isAbsent() (absent bool) {
	if f.resource.GroupVersion != istioVersion {
		return false
	}
	f.reader.change(func(*World) {
		f.absent = len(f.objects) == 0
		absent = f.absent
	})
	return absent
}

// waitsForKind reports whether there is no such kind, which is all that can be
// known of it, and takes it for followed.
func (f *feed) waitsForKind() (waits bool) {
	f.reader.change(func(*World) {
		if waits = f.absent; waits {
			f.watched, f.err = true, nil
		}
	})
	return waits
}

// missed reports whether a watch failed before. What happened meanwhile would be
// told as if it happened now, and only a list has it found.
func (f *feed) missed() bool {
	f.reader.mu.Lock()
	defer f.reader.mu.Unlock()
	return f.err != nil && f.missing
}

// Forbidden says which right is missing.
type Forbidden struct {
	Resource, Namespace, Verb string

	err error
}

// Error implements error.
func (f *Forbidden) Error() string {
	where := "in all namespaces"
	if f.Namespace != "" {
		where = "in namespace " + f.Namespace
	}
	return fmt.Sprintf("%v; allow get, list and watch of %s %s", f.err, f.Resource, where)
}

// Unwrap returns what the API said.
func (f *Forbidden) Unwrap() error { return f.err }

func (f *feed) explain(verb string, err error) error {
	where := f.resource.String()
	if f.namespace != "" {
		where += " in namespace " + f.namespace
	}
	switch {
	case apierrors.IsForbidden(err):
		return &Forbidden{Resource: f.resource.String(), Namespace: f.namespace, Verb: verb, err: err}
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s %s: %w; the credentials are not accepted: they have expired, or are for another cluster", verb, where, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s %s: %w; the API no longer serves them: was the definition of the kind removed?", verb, where, err)
	}
	return fmt.Errorf("%s %s: %w", verb, where, err)
}

// knowledge is how far the world may be relied on.
type knowledge struct {
	pending bool             // something is still to be listed
	lost    error            // why all may be out of date
	refused map[string]error // namespaces that may not be read, and why
}

// assess looks at all feeds. It holds the lock.
func (r *Reader) assess() knowledge {
	k := knowledge{refused: make(map[string]error)}
	for _, f := range r.feeds {
		_, forbidden := errors.AsType[*Forbidden](f.err)
		switch {
		case forbidden && f.namespace != "":
			k.refused[f.namespace] = cmp.Or(k.refused[f.namespace], f.err)
		case f.err != nil:
			k.lost = cmp.Or(k.lost, f.err)
		}
	}
	if len(k.refused) == len(r.o.Namespaces) {
		k.lost = cmp.Or(k.lost, k.refused[r.o.Namespaces[0]])
	}
	k.pending = slices.ContainsFunc(r.feeds, func(f *feed) bool { return k.refused[f.namespace] == nil && (!f.listed || !f.watched) })
	if k.lost == nil && !k.pending {
		r.show(k)
	}
	return k
}

// show has the world tell of the namespaces that are known from now on.
func (r *Reader) show(k knowledge) {
	for _, n := range r.o.Namespaces {
		if k.refused[n] == nil {
			r.world.Show(n)
		}
	}
}

// teller tells what changed. Only the goroutine of Run touches it.
type teller struct {
	reader  *Reader
	changed func(mesh.Changes)

	epoch, connection int
	told              bool // everything, in this epoch
	lost              string
	refused           map[string]string
	keys, mapped      bool // keys changed since they were told; they were told once
	mapping           metadata.Mapping
	skipped           []metadata.PublicationError
	unread            error     // why objects cannot be read that never could be
	lostAt            time.Time // since when all may be out of date; zero: it is not
}

// connect begins another connection.
func (t *teller) connect() {
	t.connection++
	if t.told {
		t.told = false
		t.changed(mesh.Changes{Epoch: t.epoch, Connection: t.connection, Lost: errRechecking})
	}
}

// tell tells what changed since the last.
func (t *teller) tell() {
	r := t.reader
	r.mu.Lock()
	k := r.assess()
	c := t.changes(k)
	r.mu.Unlock()
	t.know(&c, k)
	c.Epoch, c.Connection = t.epoch, t.connection
	if t.keys && t.mapped || c.Lost != nil || c.Complete {
		c.Mapping, t.keys = t.snapshot(k), false
	}
	t.changed(c)
}

// changes gathers what follows from the objects. The reader's lock is held.
func (t *teller) changes(k knowledge) mesh.Changes {
	d := t.reader.world.Settle()
	c := mesh.Changes{Clusters: d.Clusters, Rejected: d.Rejected}
	if d.Keys {
		t.mapping, t.skipped = t.reader.world.Mapping()
		t.unread = t.reader.world.Unread()
	}
	refused := texts(k.refused)
	for n, err := range k.refused {
		for _, name := range t.reader.world.In(n) {
			c.Rejected[name] = err
		}
	}
	for n := range t.refused {
		if _, still := refused[n]; !still {
			for _, name := range t.reader.world.In(n) {
				if c.Rejected[name] == nil {
					c.Rejected[name] = nil
				}
			}
		}
	}
	t.keys = t.keys || d.Keys || !maps.Equal(refused, t.refused)
	t.refused = refused
	return c
}

func texts(errs map[string]error) map[string]string {
	out := make(map[string]string, len(errs))
	for k, err := range errs {
		out[k] = err.Error()
	}
	return out
}

// know adds how far all may be relied on.
func (t *teller) know(c *mesh.Changes, k knowledge) {
	lost := k.lost
	if lost == nil && k.pending && t.told {
		lost = errReading
	}
	switch {
	case lost != nil:
		if t.told || lost.Error() != t.lost {
			c.Lost = lost
		}
		t.told, t.lost = false, lost.Error()
	case !k.pending && !t.told:
		t.epoch++
		t.told, t.mapped, t.lost, c.Complete = true, true, "", true
	}
}

var errReading = errors.New("reading everything anew, because the API has forgotten what changed meanwhile")

func (t *teller) snapshot(k knowledge) *debug.Snapshot {
	now := time.Now()
	switch {
	case k.lost == nil:
		t.lostAt = time.Time{}
	case t.lostAt.IsZero():
		t.lostAt = now
	default:
		now = t.lostAt
	}
	s := &debug.Snapshot{
		Mapping: t.mapping, Complete: t.mapped, Err: k.lost,
		Skipped: t.skipped[:min(len(t.skipped), maxSkipped)], SkippedTotal: len(t.skipped), At: now,
	}
	var all []string
	for _, n := range slices.Sorted(maps.Keys(k.refused)) {
		all = append(all, k.refused[n].Error())
	}
	if t.unread != nil {
		all = append(all, t.unread.Error())
	}
	if len(all) > 0 {
		s.Unread = errors.New(strings.Join(all, "; "))
	}
	return s
}

// maxSkipped is how many keys that cannot be read are listed.
const maxSkipped = 1000
