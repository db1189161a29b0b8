package zookeeper

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/metadata"
	"github.com/xds-bridge/xds-bridge/registry"
)

// Lifetime says how long entries live.
type Lifetime string

// The lifetimes.
const (
	// Persistent entries stay until they are deleted: a bridge that is away
	// leaves consumers a working view.
	Persistent Lifetime = "persistent"
	// Session entries go with the session of the bridge.
	Session Lifetime = "session"
)

// Access says who may touch what the target writes: its entries, and the
// parents that hold them where the target made these. What lies above the
// parents stays open, because clients make their own parents there.
type Access string

// The kinds of access. All but Open need a user.
const (
	Open     Access = "open"      // everybody
	ReadOnly Access = "read-only" // our user; others read
	Private  Access = "private"   // our user alone
)

// The limits of a ZooKeeper and its clients as they come: jute.maxbuffer.
const (
	DefaultChildrenLimit = 0xfffff // bytes of the list of a parent's nodes
	DefaultDataLimit     = 0xffc00 // bytes of a node: its path, its data and what a request adds
)

// TargetOptions tune a Target. Owner and Layouts are needed.
type TargetOptions struct {
	Owner         string // the owner id of the configuration
	Layouts       []Layout
	Bridges       []string                 // what identifies the bridges that lead here whatever their owner; empty: Admit does not look for another owner
	Shared        bool                     // other processes of the owner may write at the same time, as leases decide
	Lifetime      Lifetime                 // empty: Persistent
	Access        Access                   // empty: Open
	Adopts        func(owner string) bool  // whose entries may be replaced beside our own, where a person says so, who is not asked for admission either; nil: nobody's
	Ours          func(session int64) bool // whether a session is of this process too, as that of the connection before; nil: none is
	Signer        *metadata.Signer         // nil: marks are not signed, and taken at their word
	ChildrenLimit int                      // 0: DefaultChildrenLimit
	DataLimit     int                      // 0: DefaultDataLimit
	Unregistered  bool                     // leave nothing in the ensemble but the entries, and be asked for no admission: for the many processes that provide themselves
	Log           *slog.Logger
	Fence         func() (Fence, bool) // under which it may be written, false where it may not; nil: no fence
	Usage         func(Usage)          // called with the fullest parent whenever that changes, as Target.Usage; may be nil
}

// Target writes entries to ZooKeeper. It implements registry.Target,
// registry.Verified, registry.Watched, registry.Admitted and, for the lifetime Session,
// registry.Sessioned.
type Target struct {
	client  *Client
	opts    TargetOptions
	owner   string // as marks hold it
	parents parentCache
	sizes   sizes
	foreign foreignEntries
	raised  raised
	lost    <-chan struct{}
	ledger  ledger

	admission  admission
	tightened  known // that what a version before left open is closed
	remembered known // that the record of our bridges is there
	marked     known // whether entries of ours may be ephemeral; see mayBeEphemeral
}

// NewTarget returns a target that writes through a client, which stays the
// caller's.
func NewTarget(client *Client, opts TargetOptions) (*Target, error) {
	defaultTo(&opts.Lifetime, Persistent)
	defaultTo(&opts.Access, Open)
	defaultTo(&opts.ChildrenLimit, DefaultChildrenLimit)
	defaultTo(&opts.DataLimit, DefaultDataLimit)
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if err := opts.validate(client); err != nil {
		return nil, fmt.Errorf("zookeeper target: %w", err)
	}
	t := &Target{
		client: client, opts: opts, owner: metadata.NewMark(opts.Owner, "").Owner,
		sizes: sizes{limit: opts.ChildrenLimit, log: opts.Log, notify: opts.Usage},
	}
	t.opts.Shared = opts.Shared || opts.Fence != nil
	t.admission.asking = make(chan struct{}, 1)
	t.ledger.off = opts.Unregistered
	if opts.Lifetime == Session {
		t.lost = client.replaced
	}
	return t, nil
}

func (o TargetOptions) validate(client *Client) error {
	switch {
	case client == nil || o.Owner == "" || len(o.Layouts) == 0:
		return errors.New("it needs a client, an owner and a layout")
	case o.Lifetime != Persistent && o.Lifetime != Session:
		return fmt.Errorf("lifetime %q is neither persistent nor session", o.Lifetime)
	case !slices.Contains([]Access{Open, ReadOnly, Private}, o.Access):
		return fmt.Errorf("acl %q is none of open, read-only and private", o.Access)
	case o.Access != Open && client.opts.User == "":
		return fmt.Errorf("acl %q needs user and passwordFile", o.Access)
	}
	if err := checkName(url.PathEscape(o.Owner)); err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	for _, l := range o.Layouts {
		if !validPattern(l.Parents()) {
			return fmt.Errorf("layout %q: not an absolute path with * for one of its parts", l.Parents())
		}
	}
	return nil
}

func validPattern(parents string) bool {
	before, after, ok := strings.Cut(parents, "*")
	return ok && strings.HasPrefix(before, "/") && strings.HasSuffix(before, "/") && (after == "" || after[0] == '/')
}

// Overlap is how long two nodes of one entry stand side by side: time enough
// for a busy consumer to see the new one before the other goes. For as long it
// sends the provider the calls of both.
const Overlap = 3 * time.Second

// Overlap implements registry.Overlapping.
func (t *Target) Overlap(group registry.Group) time.Duration {
	if layout, _, err := t.place(group); err == nil && layout.Replaces() == metadata.Overlapping {
		return Overlap
	}
	return 0
}

// Lost implements registry.Sessioned. It is never ready for the lifetime
// Persistent.
func (t *Target) Lost() <-chan struct{} { return t.lost }

// Report is what Check found out.
type Report struct {
	Server  string        // that holds the session
	Version string        // of the server; empty where it does not answer srvr
	Asked   time.Duration // session timeout
	Granted time.Duration // session timeout
	Read    error         // of the parents of the layouts; nil: they can be listed
	Write   error         // nil: a node under /xds-bridge/<owner> was made and deleted, and one could be made in each root
	Skew    time.Duration // how far the server's clock is ahead of ours, give or take Took
	Took    time.Duration // the round trip of the written node
}

// Check tries whether everything is as the target requires it, and leaves nothing
// behind. It fails where no session can be had; all else is in the report.
func (t *Target) Check(ctx context.Context) (Report, error) {
	if _, err := t.client.exists(ctx, "/"); err != nil {
		return Report{}, err
	}
	state := t.client.State()
	r := Report{
		Server: state.Server, Version: t.client.version(ctx, state.Server),
		Asked: t.client.opts.SessionTimeout, Granted: state.Timeout,
	}
	_, r.Read = t.Groups(ctx)
	r.Write = cmp.Or(t.tryHome(ctx, &r), t.mayWrite(ctx))
	return r, nil
}

// tryHome tries to write to what is the owner's own, and deletes what of it was
// not there before.
func (t *Target) tryHome(ctx context.Context, r *Report) error {
	var missing []string
	for _, path := range []string{t.home(), home} {
		stat, err := t.client.exists(ctx, path)
		if err != nil {
			return err
		}
		if stat == nil {
			missing = append(missing, path)
		}
	}
	err := t.probe(ctx, r)
	for _, path := range missing {
		_, failed := t.client.multi(ctx, []any{&zk.DeleteRequest{Path: path, Version: -1}})
		if err == nil && failed != nil && !harmless(failed, path) {
			err = fmt.Errorf("delete %s: %w", path, failed)
		}
	}
	return err
}

// probe writes a node and deletes it. It is ephemeral, so that it goes even
// if we do in between.
func (t *Target) probe(ctx context.Context, r *Report) error {
	op := t.own("probe-"+rand.Text(), "", zk.FlagEphemeral)
	if err := t.client.make(ctx, &zk.CreateRequest{Path: t.home(), Data: []byte{}, Acl: t.acl()}); err != nil {
		return err
	}
	before := time.Now()
	if err := t.client.make(ctx, op); err != nil {
		return err
	}
	r.Took = time.Since(before)
	stat, err := t.client.exists(ctx, op.Path)
	if err != nil {
		return err
	}
	if stat != nil {
		r.Skew = time.UnixMilli(stat.Ctime).Sub(before.Add(r.Took / 2)).Round(time.Millisecond)
	}
	if _, err := t.client.multi(ctx, []any{&zk.DeleteRequest{Path: op.Path, Version: -1}}); err != nil {
		return fmt.Errorf("delete %s: %w", op.Path, err)
	}
	return nil
}

// mayWrite returns why nothing can be made in the root of some layout.
func (t *Target) mayWrite(ctx context.Context) error {
	for _, l := range t.opts.Layouts {
		before, _, _ := strings.Cut(l.Parents(), "*")
		if err := t.client.mayMake(ctx, before+"xds-bridge-"+rand.Text()); err != nil {
			return err
		}
	}
	return nil
}

// version asks a server for its version; empty where it does not say, which
// most servers are set up to.
func (c *Client) version(ctx context.Context, server string) string {
	ctx, cancel := context.WithTimeout(ctx, c.opts.DialTimeout)
	defer cancel()
	conn, err := c.open(ctx, "tcp", server)
	if err != nil {
		return ""
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if conn.SetDeadline(deadline) != nil {
		return ""
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return ""
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 4<<10))
	if err != nil {
		return ""
	}
	text, ok := strings.CutPrefix(string(answer), "Zookeeper version: ")
	if !ok {
		return ""
	}
	version, _, _ := strings.Cut(text, ",")
	return strings.TrimSpace(version)
}
