package zookeeper

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

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

// The limits of a ZooKeeper and its clients by default: jute.maxbuffer.
const (
	DefaultChildrenLimit = 0xfffff // bytes of the list of a parent's nodes
	DataLimit            = 0xffc00 // bytes of a node: its path, its data and what a request adds
)

// TargetOptions tune a Target. Owner and Layouts are required.
type TargetOptions struct {
	Owner         string // the owner id of the configuration
	Layouts       []Layout
	Bridges       []string                 // identify the bridges to this target under any owner; empty: Admit does not look for another owner
	Shared        bool                     // other processes of the owner may write at the same time, under leases
	Lifetime      Lifetime                 // empty: Persistent
	Access        Access                   // empty: Open
	Adopts        func(owner string) bool  // whether a person lets us replace entries of an owner, without admission; nil: of none
	Ours          func(session int64) bool // whether a session is of this process too, as that of the connection before; nil: none is
	Signer        *metadata.Signer         // nil: marks are not signed, and not verified
	ChildrenLimit int                      // 0: DefaultChildrenLimit
	Unregistered  bool                     // for a process that registers itself: no admission, and no nodes of the owner's own
	Log           *slog.Logger
	Fence         func() (Fence, bool) // the fence to write under, false if this process may not write; nil: no fence
	Usage         func(share float64)  // called with what the largest parent uses of the limit whenever that changes, 0 for less than a sixteenth; may be nil
}

// Target writes entries to ZooKeeper. It implements registry.Target, registry.Watcher and
// registry.Recorder.
type Target struct {
	*admission
	*presence
	owners
	recorder

	names      *ownerNames
	client     *Client
	opts       TargetOptions
	owner      string // as marks hold it
	home       *home
	prepared   sessionFact // the home is written
	parents    *parentCache
	sizes      *parentSizes
	foreign    foreignNodes
	ephemerals ephemerals
	fence      fence
	ledger     *ledger
	lost       <-chan struct{}
}

// NewTarget returns a target that writes through a client, which the caller closes.
func NewTarget(client *Client, opts TargetOptions) (*Target, error) {
	defaultTo(&opts.Lifetime, Persistent)
	defaultTo(&opts.Access, Open)
	defaultTo(&opts.ChildrenLimit, DefaultChildrenLimit)
	defaultTo(&opts.Log, slog.New(slog.DiscardHandler))
	if err := opts.validate(client); err != nil {
		return nil, fmt.Errorf("zookeeper target: %w", err)
	}
	opts.Shared = opts.Shared || opts.Fence != nil
	h, parents := newHome(client, opts.Owner, opts.Access), &parentCache{exists: make(map[string]bool)}
	t := &Target{
		owners: owners{client}, recorder: recorder{h}, names: &ownerNames{owners: owners{client}},
		client: client, opts: opts, owner: metadata.NewMark(opts.Owner, "").Owner, home: h, parents: parents,
		sizes:      newParentSizes(opts.ChildrenLimit, opts.Log, opts.Usage),
		foreign:    foreignNodes{reasons: make(map[registry.Group]map[string]error)},
		ephemerals: ephemerals{home: h, lifetime: opts.Lifetime},
		fence:      fence{home: h, current: opts.Fence},
		ledger:     newLedger(h, parents, opts),
	}
	t.presence = &presence{home: h, opts: &t.opts}
	t.admission = newAdmission(h, &t.opts, t.presence)
	if opts.Lifetime == Session {
		t.lost = client.replaced
	}
	return t, nil
}

func (o *TargetOptions) validate(client *Client) error {
	switch {
	case client == nil || o.Owner == "" || len(o.Layouts) == 0:
		return errors.New("a client, an owner or a layout is missing")
	case o.Lifetime != Persistent && o.Lifetime != Session:
		return fmt.Errorf("lifetime %q is neither persistent nor session", o.Lifetime)
	case !slices.Contains([]Access{Open, ReadOnly, Private}, o.Access):
		return fmt.Errorf("acl %q is none of open, read-only and private", o.Access)
	case o.Access != Open && client.opts.User == "":
		return fmt.Errorf("acl %q requires user and passwordFile", o.Access)
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

func (o *TargetOptions) adopts(owner string) bool { return o.Adopts != nil && o.Adopts(owner) }

func validPattern(parents string) bool {
	before, after, ok := strings.Cut(parents, "*")
	return ok && strings.HasPrefix(before, "/") && strings.HasSuffix(before, "/") && (after == "" || after[0] == '/')
}

// Overlap is how long two nodes of one entry exist side by side: time enough
// for a busy consumer to see the new one before the other goes. For as long it
// sends the provider the calls of both.
const Overlap = 3 * time.Second

// Capabilities implements registry.Target.
func (t *Target) Capabilities() registry.Capabilities {
	return registry.Capabilities{
		Sessions: true, Lost: t.lost, Admission: t.Admission, Records: t.recorder, VerifyAfter: verifyAfter,
		Watcher: t, Overlap: t.Overlap, Leave: metadata.Leave,
	}
}

// Overlap returns how long a node of a group is kept next to its replacement; see
// registry.Capabilities.
func (t *Target) Overlap(group registry.Group) time.Duration {
	if at, err := locate(t.opts.Layouts, group); err == nil && at.layout.Replaces() == metadata.Overlapping {
		return Overlap
	}
	return 0
}
