package nacos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/naming"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

// Format is what a Source has to know of one format: which services are its
// own and what their instances say.
type Format interface {
	// Kind is the Group.Kind of its groups.
	Kind() string

	// GroupOf returns the group that a service of a server is, and false for
	// a service that is none of the format's.
	GroupOf(namespace, group, service string) (registry.Group, bool)

	// Decode returns the services that entries report, each with a name that
	// begins as Group.String of its entries does up to the service's name. The
	// value of an entry is metadata.NacosInstance.String, the key its Key. An
	// entry that cannot be read is an error of its own and costs its neighbours nothing.
	Decode(entries, extras []registry.Entry) ([]*registry.Service, []metadata.DecodeError)
}

// Scope is a namespace and a group of a server.
type Scope struct {
	Namespace string // id; empty is public
	Group     string // empty: DEFAULT_GROUP
}

// SourceOptions tune a Source.
type SourceOptions struct {
	Formats  []Format
	Scopes   []Scope            // what is read; none: the public namespace's DEFAULT_GROUP
	Select   []naming.Pattern   // of the names of services; none: all
	Interest *registry.Interest // names of services, in place of listing them; nil: all
	Asker    dependency.Asker   // gets what entries need and Nacos does not store; nil: nobody can be asked

	ListInterval   time.Duration // between lists of the names; 0: 5 s
	VerifyInterval time.Duration // within which each service is asked for once more without a cause; 0: 60 s
	ReadAhead      int           // requests under way at a time; 0: 64
}

// Source reports to a table what providers register in Nacos. It lists the names
// of the services at intervals and subscribes their instances, over
// connections of its own: a subscription ends with its connection, so each is
// read from the start, and what is published stays untouched by a server that
// cannot keep up with its pushes.
//
// A push is a hint that may be lost, repeated, late or out of order. One that
// is newer than all that is known of its connection is believed; any other,
// and one that says that nothing is left, makes the source ask. Every service
// is asked for once within VerifyInterval besides.
//
// Instances that are not enabled are left out: servers show them in pushes
// alone, never in answers.
type Source struct {
	client *Client
	opts   SourceOptions
	log    *slog.Logger

	rechecks chan struct{}

	mu    sync.Mutex
	stats SourceStats
}

// SourceStats count what a Source reads.
type SourceStats struct {
	Services   int // of our formats, subscribed
	Foreign    int // services of the scopes that are of no format here or not selected
	Unreadable int // services whose last reading failed
	Pushes     int // taken in since the start
	Repaired   int // differences that no push had reported
}

// NewSource returns a source. The error names the option that is wrong.
func NewSource(conn Options, o SourceOptions) (*Source, error) {
	client, err := New(conn)
	if err != nil {
		return nil, err
	}
	if len(o.Formats) == 0 {
		return nil, errors.New("a Nacos source needs a format")
	}
	if len(o.Scopes) == 0 {
		o.Scopes = []Scope{{}}
	}
	o.Scopes = slices.Clone(o.Scopes)
	for i := range o.Scopes {
		set(&o.Scopes[i].Group, "DEFAULT_GROUP")
		same := func(at Scope) bool {
			return at.Group == o.Scopes[i].Group && onWire(at.Namespace) == onWire(o.Scopes[i].Namespace)
		}
		if slices.ContainsFunc(o.Scopes[:i], same) {
			return nil, fmt.Errorf("namespace %q group %q: named twice", o.Scopes[i].Namespace, o.Scopes[i].Group)
		}
		if err := metadata.CheckNacosService(o.Scopes[i].Namespace, o.Scopes[i].Group, "any"); err != nil {
			return nil, err //nolint:wrapcheck // says what is wrong with it
		}
	}
	set(&o.ListInterval, 5*time.Second)
	set(&o.VerifyInterval, time.Minute)
	set(&o.ReadAhead, 64)
	return &Source{client: client, opts: o, log: client.opts.Log, rechecks: make(chan struct{}, 1)}, nil
}

// State returns what is known of the connection and the login.
func (s *Source) State() State { return s.client.State() }

// Stats returns what the source reads.
func (s *Source) Stats() SourceStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Run implements registry.Source. It may be called once.
func (s *Source) Run(ctx context.Context, table *registry.Table) error {
	const lived = 10 * time.Second // a connection that lasts so long was a good one
	c := s.client
	ctx, cancel := context.WithCancel(ctx)
	defer c.goroutines.Wait()
	defer cancel()
	if c.opts.Username != "" {
		c.goroutines.Go(func() { c.login.keep(ctx) })
	}
	r := newReader(s, table)
	table.Stale(fmt.Errorf("not read yet: connecting to %s", c.opts.Servers))
	next := rand.IntN(len(c.servers)) //nolint:gosec // spreads load, keeps no secret
	for attempt := 0; ; next++ {
		began := time.Now()
		s.satisfied()
		cn, err := c.connect(ctx, c.servers[next%len(c.servers)])
		if err == nil {
			err = r.connection(ctx, cn)
		} else {
			c.failed(attempt+1, err)
		}
		if ctx.Err() != nil {
			return nil
		}
		table.Stale(err)
		if time.Since(began) >= lived {
			attempt = 0
			continue
		}
		if attempt++; attempt%len(c.servers) == 0 { // else the next server may be better
			c.pause(ctx, c.opts.Backoff.Spread(attempt/len(c.servers)))
		}
	}
}

// errRecheck says that a new connection was asked for.
var errRecheck = errors.New("everything is being read anew, as was asked for")

// Recheck makes everything be read anew, over a new connection, to the next
// server where there are several. It does not block.
func (s *Source) Recheck() {
	select {
	case s.rechecks <- struct{}{}:
	default:
	}
}

// satisfied forgets that a new connection was asked for, because there is going
// to be one.
func (s *Source) satisfied() {
	select {
	case <-s.rechecks:
	default:
	}
}

// Check lists the names of every scope over a connection of its own and
// returns how that connection was, and how many services there are; the error is
// ErrNoNamespace where nobody else sees them. Run must not be running.
func (s *Source) Check(ctx context.Context) (State, int, error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- s.client.Run(ctx) }()
	n := 0
	var failed error
	for _, scope := range s.opts.Scopes {
		names, err := listNames(ctx, s.client, scope.Namespace, scope.Group)
		if err != nil {
			failed = fmt.Errorf("list namespace %q group %q: %w", scope.Namespace, scope.Group, err)
			break
		}
		n += len(names)
	}
	if failed == nil {
		failed = s.client.missing(ctx)
	}
	state := s.client.State()
	cancel()
	return state, n, errors.Join(failed, <-done)
}
