package nacos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
	"github.com/xds-bridge/xds-bridge/registry/dependency"
)

// A Format decides which services are of a format, and decodes their instances.
type Format interface {
	// Kind is the Group.Kind of its groups.
	Kind() string

	// GroupOf returns the group of a service, or false if the service is not of the format.
	GroupOf(namespace, group, service string) (registry.Group, bool)

	// Decode returns the services that entries report. The name of each begins with
	// Group.String of its entries, up to the service's name. The value of an entry is
	// metadata.NacosInstance.String, and the key is its Key. Entries that cannot be decoded
	// are returned with their errors, in addition to the services of the others.
	Decode(entries, extras []registry.Entry) ([]*registry.Service, []metadata.DecodeError)
}

// Scope is a namespace and a group of a server.
type Scope struct {
	Namespace string // id; empty: public
	Group     string // empty: DEFAULT_GROUP
}

// SourceOptions tune a Source.
type SourceOptions struct {
	Formats  []Format
	Scopes   []Scope            // none: DEFAULT_GROUP of the public namespace
	Interest *registry.Interest // names of services, instead of a list; nil: all

	// Asker fetches the documents that Nacos does not store, or all documents if Elsewhere
	// is set; nil: they are not fetched.
	Asker     dependency.Asker
	Elsewhere bool

	ListInterval   time.Duration // between lists of the names; 0: 5 s
	VerifyInterval time.Duration // within which each service is read again; 0: 60 s
}

// A Source reports to a table what providers register in Nacos. It lists the names of services
// at intervals, and subscribes their instances. It has its own connections, which publish
// nothing, because a server may close a connection that is too slow for its pushes. Over each
// connection everything is read again.
//
// A push may be lost, repeated, late or out of order. It is accepted if it is newer than all
// that the connection has received. After any other push, and after a push without instances,
// the source reads the service. In addition, every service is read once within
// VerifyInterval.
//
// Instances that are not enabled are left out: servers never show them in answers.
type Source struct {
	client *Client
	opts   SourceOptions
	log    *slog.Logger

	rechecks chan struct{}
}

// NewSource returns a source. The error names the invalid option.
func NewSource(conn Options, o SourceOptions) (*Source, error) {
	client, err := New(conn)
	if err != nil {
		return nil, err
	}
	if len(o.Formats) == 0 {
		return nil, errors.New("a Nacos source requires a format")
	}
	if len(o.Scopes) == 0 {
		o.Scopes = []Scope{{}}
	}
	o.Scopes = slices.Clone(o.Scopes)
	for i, s := range o.Scopes {
		s.Group = cmp.Or(s.Group, "DEFAULT_GROUP")
		same := func(o Scope) bool { return o.Group == s.Group && onWire(o.Namespace) == onWire(s.Namespace) }
		if slices.ContainsFunc(o.Scopes[:i], same) {
			return nil, fmt.Errorf("namespace %q group %q: listed twice", s.Namespace, s.Group)
		}
		o.Scopes[i] = s
		if err := metadata.CheckNacosService(s.Namespace, s.Group, "any"); err != nil {
			return nil, err
		}
	}
	o.ListInterval = cmp.Or(o.ListInterval, 5*time.Second)
	o.VerifyInterval = cmp.Or(o.VerifyInterval, time.Minute)
	return &Source{client: client, opts: o, log: client.opts.Log, rechecks: make(chan struct{}, 1)}, nil
}

// State returns the state of the connection and of the login.
func (s *Source) State() State { return s.client.State() }

// Run implements registry.Source. It may be called once.
func (s *Source) Run(ctx context.Context, table *registry.Table) error {
	const good = 10 * time.Second // a connection that lasted as long resets the backoff
	r := newReader(s, table)
	table.Stale(fmt.Errorf("not read yet: connecting to %s", s.client.opts.Servers))
	s.client.run(ctx, func(ctx context.Context, cn *conn, err error) bool {
		began := time.Now()
		if cn != nil {
			err = r.connection(ctx, cn)
		}
		if ctx.Err() == nil {
			table.Stale(err)
		}
		return time.Since(began) >= good
	})
	return nil
}

// errRecheck means that Recheck was called.
var errRecheck = errors.New("full read requested")

// Recheck starts a full read over a new connection, to the next server if there are several.
// It does not block.
func (s *Source) Recheck() {
	select {
	case s.rechecks <- struct{}{}:
	default:
	}
}

// Check lists the names of every scope over its own connection. It returns the state of the
// connection and the number of services. The error is ErrNoNamespace if the servers do not
// list the namespace. Run must not run.
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
