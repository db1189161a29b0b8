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
	// Persistent entries stay until they are deleted, so that consumers keep a working view
	// while the bridge is down.
	Persistent Lifetime = "persistent"
	// Session entries are deleted with the session of the bridge.
	Session Lifetime = "session"
)

// The default limits of ZooKeeper and its clients, by jute.maxbuffer.
const (
	DefaultChildrenLimit = 0xfffff // of the list of a parent's nodes, in bytes
	DataLimit            = 0xffc00 // of a node in a request, with its path and data, in bytes
)

// TargetOptions tune a Target. Owner and Layouts are required.
type TargetOptions struct {
	Owner         string // the owner id of the configuration
	Layouts       []Layout
	Lifetime      Lifetime         // empty: Persistent
	Access        Access           // empty: Open
	Signer        *metadata.Signer // nil: marks are neither signed nor verified
	ChildrenLimit int              // 0: DefaultChildrenLimit
	Log           *slog.Logger

	// Bridges are the names of the bridges into this target, the same under any owner. If
	// there are none, Admit does not search for another owner of them.
	Bridges []string

	// Shared reports that other processes of the owner may write at the same time, under
	// leases.
	Shared bool

	// Unregistered is for a process that registers itself: it needs no admission, and has
	// no nodes under /xds-bridge.
	Unregistered bool

	// Adopts reports whether an operator allowed this process to replace the entries of an
	// owner, without admission; nil: of no owner.
	Adopts func(owner string) bool

	// Ours reports whether another session belongs to this process, such as that of the
	// replaced connection; nil: none does.
	Ours func(session int64) bool

	// Fence returns the fence under which this process writes, or false if it may not
	// write; nil: no fence.
	Fence func() (Fence, bool)

	// Usage is called with the share of ChildrenLimit that the largest parent uses,
	// whenever that changes. Less than a sixteenth counts as 0. It may be nil.
	Usage func(share float64)
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
		return fmt.Errorf("lifetime must be persistent or session (got %q)", o.Lifetime)
	case !slices.Contains([]Access{Open, ReadOnly, Private}, o.Access):
		return fmt.Errorf("acl must be open, read-only or private (got %q)", o.Access)
	case o.Access != Open && client.opts.User == "":
		return fmt.Errorf("acl %q requires user and passwordFile", o.Access)
	}
	if err := checkName(url.PathEscape(o.Owner)); err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	for _, l := range o.Layouts {
		if !validPattern(l.Parents()) {
			return fmt.Errorf("layout %q: must be an absolute path with * as one of its parts", l.Parents())
		}
	}
	return nil
}

func (o *TargetOptions) adopts(owner string) bool { return o.Adopts != nil && o.Adopts(owner) }

func validPattern(parents string) bool {
	before, after, ok := strings.Cut(parents, "*")
	return ok && strings.HasPrefix(before, "/") && strings.HasSuffix(before, "/") && (after == "" || after[0] == '/')
}

// Overlap is how long a replaced node stays next to its replacement. Within this time a busy
// consumer sees the new node. Until the old node is deleted, the consumer sends the calls
// for both nodes to the provider.
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
