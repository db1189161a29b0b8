package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/xds-bridge/xds-bridge/registry"
)

// The nodes that bridges keep for themselves:
//
//	/xds-bridge/id                  the registry's own id, created once by the first bridge
//	/xds-bridge/<owner>/alive       ephemeral, exists while a bridge of the owner runs
//	/xds-bridge/<owner>/bridges     which bridges wrote as the owner, to detect that the owner was changed
//	/xds-bridge/<owner>/ledger/…    the tags of its entries, see ledger
//	/xds-bridge/<owner>/leases/…    which replica leads each target of the owner, if the leases are kept here
//	/xds-bridge/<owner>/fence       which replica may write here, and in which term
//	/xds-bridge/<owner>/session     exists once a bridge of the owner has written ephemeral entries
//	/xds-bridge/<owner>/probe-<x>   ephemeral, created and deleted by Check
const (
	homeRoot    = "/xds-bridge"
	aliveNode   = "alive"
	bridgesNode = "bridges"
	ledgerNode  = "ledger"
	leasesNode  = "leases"
	fenceNode   = "fence"
	sessionNode = "session"
)

func homePath(owner string) string { return homeRoot + "/" + url.PathEscape(owner) }

// A home is the nodes that an owner keeps for itself.
type home struct {
	client *Client
	path   string
	acl    []zk.ACL
}

func newHome(client *Client, owner string, access Access) *home {
	return &home{client, homePath(owner), access.acl()}
}

// node returns the path of a node by its name.
func (h *home) node(name string) string { return h.path + "/" + name }

// request returns the request that creates a node.
func (h *home) request(name, data string, flags int32) *zk.CreateRequest {
	return &zk.CreateRequest{Path: h.node(name), Data: []byte(data), Acl: h.acl, Flags: flags}
}

// exists reports whether there is a node.
func (h *home) exists(ctx context.Context, name string) (bool, error) {
	stat, err := h.client.exists(ctx, h.node(name))
	return stat != nil, err
}

// acl returns the ACL of what the target writes.
func (a Access) acl() []zk.ACL {
	switch a {
	case ReadOnly:
		return append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...)
	case Private:
		return zk.AuthACL(zk.PermAll)
	default:
		return zk.WorldACL(zk.PermAll)
	}
}

func isOpen(acl []zk.ACL) bool { return slices.Contains(acl, zk.WorldACL(zk.PermAll)[0]) }

// aclAbove returns the ACL of a node that is created because another with an ACL
// is below it. In a home it is the same. In the node above the homes others may
// create theirs, but not delete. All else is open, because clients create their
// own nodes in it.
func aclAbove(path string, below []zk.ACL) []zk.ACL {
	switch {
	case isOpen(below), path != homeRoot && !strings.HasPrefix(path, homeRoot+"/"):
		return zk.WorldACL(zk.PermAll)
	case path != homeRoot:
		return below
	}
	ours := slices.DeleteFunc(slices.Clone(below), func(a zk.ACL) bool { return a.Scheme == "world" })
	return append(ours, zk.WorldACL(zk.PermRead|zk.PermCreate)...)
}

// A sessionFact is what was found or done in one session. In the next the
// registry may have less, as after a restore, so that it is looked up once more.
type sessionFact struct {
	mu      sync.Mutex
	session int64
	value   bool
}

// get returns the fact in a session, and whether it is known.
func (f *sessionFact) get(session int64) (value, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known = session != 0 && f.session == session
	return f.value && known, known
}

func (f *sessionFact) set(session int64, value bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session, f.value = session, value
}

// ephemerals knows which session holds the entries of a target.
type ephemerals struct {
	home     *home
	lifetime Lifetime
	marked   sessionFact // whether the marker exists
}

// session returns the session that holds what the target writes now; 0 for none.
func (e *ephemerals) session() int64 {
	if e.lifetime == Persistent {
		return 0
	}
	return e.home.client.State().Session
}

func (e *ephemerals) flags() int32 {
	if e.lifetime == Session {
		return zk.FlagEphemeral
	}
	return zk.FlagPersistent
}

// possible reports whether the lifetime of our nodes has to be read: always for the
// lifetime Session, and else only if a bridge of the owner ever wrote ephemeral
// nodes, as the marker shows. Without it, listing a parent is enough.
func (e *ephemerals) possible(ctx context.Context) (bool, error) {
	if e.lifetime == Session {
		return true, nil
	}
	session := e.home.client.State().Session
	if marked, known := e.marked.get(session); known {
		return marked, nil
	}
	marked, err := e.home.exists(ctx, sessionNode)
	if err != nil {
		return false, err
	}
	e.marked.set(session, marked)
	return marked, nil
}

// mark creates the marker if entries are ephemeral.
func (e *ephemerals) mark(ctx context.Context) error {
	if e.lifetime == Persistent {
		return nil
	}
	return e.home.client.make(ctx, e.home.request(sessionNode, "", zk.FlagPersistent))
}

// A Fence is the right to write as an owner. A node holds its term and holder, and
// every transaction checks that node. After another process has raised it to a
// later term, nothing that was sent in an earlier one is applied, however late
// it arrives.
type Fence struct {
	Term   int64
	Holder string
}

// content returns the data of the node of a fence.
func (f Fence) content() string { return strconv.FormatInt(f.Term, 10) + " " + f.Holder }

// checkLater returns an error unless the term is later than that of the content of a node.
func (f Fence) checkLater(path, content string) error {
	text, holder, _ := strings.Cut(content, " ")
	term, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %s holds %.80q, which is no term; delete the node", registry.ErrRefused, path, content)
	}
	if term >= f.Term {
		return fmt.Errorf("%w: %s has it in term %d, ours is %d; if that process and its replicas do not run any more, delete %s",
			registry.ErrFenced, holder, term, f.Term, path)
	}
	return nil
}

// fence lets a target write only while this process has the right to.
type fence struct {
	home    *home
	current func() (Fence, bool) // nil: no fence

	mu      sync.Mutex
	raised  Fence // to which we raised the node; the zero value: none
	version int32 // of the node
}

// raise raises the fence if the target is ours to write. Then writes of others that
// are under way fail, so that what is read next is changed only by us.
func (f *fence) raise(ctx context.Context) error {
	if f.current == nil {
		return nil
	}
	to, ours := f.current()
	if !ours {
		return nil
	}
	_, err := f.raiseTo(ctx, to)
	return err
}

// check returns the operation that checks that the target is still ours to write;
// none without a fence.
func (f *fence) check(ctx context.Context) ([]any, error) {
	if f.current == nil {
		return nil, nil
	}
	to, ours := f.current()
	if !ours {
		return nil, fmt.Errorf("%w: this replica does not lead", registry.ErrFenced)
	}
	version, err := f.raiseTo(ctx, to)
	if err != nil {
		return nil, err
	}
	return []any{&zk.CheckVersionRequest{Path: f.home.node(fenceNode), Version: version}}, nil
}

// recheck is check after the operation has failed.
func (f *fence) recheck(ctx context.Context) ([]any, error) {
	if _, ours := f.current(); !ours {
		return nil, fmt.Errorf("%w while the write was under way", registry.ErrFenced)
	}
	f.set(Fence{}, 0)
	return f.check(ctx)
}

// raiseTo makes the node hold our term and returns its version.
func (f *fence) raiseTo(ctx context.Context, to Fence) (int32, error) {
	if version, ok := f.get(to); ok {
		return version, nil
	}
	client, path := f.home.client, f.home.node(fenceNode)
	for range attempts {
		n, err := client.get(ctx, path)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			err = client.make(ctx, f.home.request(fenceNode, "0 nobody", zk.FlagPersistent))
		case err != nil:
		case string(n.data) == to.content():
			f.set(to, n.stat.Version)
			return n.stat.Version, nil
		default:
			if err = to.checkLater(path, string(n.data)); err == nil {
				err = client.do(ctx, &zk.SetDataRequest{Path: path, Data: []byte(to.content()), Version: n.stat.Version})
			}
		}
		if err != nil && !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) {
			return 0, fmt.Errorf("raise %s: %w", path, err)
		}
	}
	return 0, fmt.Errorf("%w: %s keeps changing", registry.ErrConflict, path)
}

func (f *fence) get(to Fence) (version int32, raised bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version, f.raised == to && to != Fence{}
}

func (f *fence) set(raised Fence, version int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.raised, f.version = raised, version
}
