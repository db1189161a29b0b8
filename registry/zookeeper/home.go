package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

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

func (h *home) node(name string) string { return h.path + "/" + name }

func (h *home) request(name, data string, flags int32) *zk.CreateRequest {
	return &zk.CreateRequest{Path: h.node(name), Data: []byte(data), Acl: h.acl, Flags: flags}
}

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

// A Fence is the right to write as an owner. A node holds its term and holder, and
// every transaction checks that node. After another process has raised it to a
// later term, nothing that was sent in an earlier one is applied, however late
// it arrives.
type Fence struct {
	Term   int64
	Holder string
}

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
	current func() (Fence, bool)        // nil: no fence
	raised  atomic.Pointer[raisedFence] // nil: we did not raise the node
}

// A raisedFence is what we raised the node to.
type raisedFence struct {
	Fence
	version int32 // of the node
}

// raise raises the fence if the target is ours to write. Then writes of others that
// are in flight fail, so that what is read next is changed only by us.
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
		return nil, fmt.Errorf("%w while the write was in flight", registry.ErrFenced)
	}
	f.raised.Store(nil)
	return f.check(ctx)
}

func (f *fence) raiseTo(ctx context.Context, to Fence) (int32, error) {
	if raised := f.raised.Load(); raised != nil && raised.Fence == to {
		return raised.version, nil
	}
	client, path := f.home.client, f.home.node(fenceNode)
	for range attempts {
		n, err := client.get(ctx, path)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			err = client.createAll(ctx, f.home.request(fenceNode, "0 nobody", zk.FlagPersistent))
		case err != nil:
		case string(n.data) == to.content():
			f.raised.Store(&raisedFence{to, n.stat.Version})
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

// IDNode is the node of a registry's own id.
const IDNode = homeRoot + "/id"

// ID returns the id that the registry keeps of itself, from which metadata.Hop
// makes the hop that identifies it in a path. A registry without one keeps offer
// from now on; of several bridges that come first at the same time, one wins for
// all. An empty offer stores none: then ID returns none, or why none could be stored.
func (c *Client) ID(ctx context.Context, offer string, access Access) (string, error) {
	for range 2 {
		n, err := c.read(ctx, IDNode)
		id := strings.TrimSpace(string(n.data))
		switch {
		case err != nil || id != "":
			return id, err
		case n.stat != nil:
			return "", fmt.Errorf("%w: %s is empty; write an id that no other registry has into it", registry.ErrRefused, IDNode)
		case offer == "":
			return "", c.checkCreate(ctx, IDNode)
		}
		op := &zk.CreateRequest{Path: IDNode, Data: []byte(offer), Acl: access.acl()}
		if access == Private { // every bridge may read it
			op.Acl = append(op.Acl, zk.WorldACL(zk.PermRead)...)
		}
		if err := c.createAll(ctx, op); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%w: %s was deleted as soon as it was created", registry.ErrConflict, IDNode)
}

// recorder keeps small texts in the home of an owner.
type recorder struct{ home *home }

// A Recorder is a registry.Recorder that can be tried.
type Recorder interface {
	registry.Recorder

	// TryRecord returns why no record can be kept; nil: records can be.
	TryRecord(ctx context.Context) error
}

// NewRecorder returns a Recorder of an owner for a process that writes no entries into the
// ensemble of the client.
func NewRecorder(client *Client, owner string, access Access) Recorder {
	return recorder{newHome(client, owner, access)}
}

// TryRecord returns an error if no records can be kept, by a node that it creates and
// deletes. It leaves nothing but the parent /xds-bridge/<owner>.
func (r recorder) TryRecord(ctx context.Context) error { return r.home.probe(ctx, &Report{}) }

// Records implements registry.Recorder: a text is a node under
// /xds-bridge/<owner>/<kind>.
func (r recorder) Records(ctx context.Context, kind string) (map[string]string, error) {
	parent := r.home.node(kind)
	names, err := r.home.client.list(ctx, parent)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string, len(names))
	var refused error
	for _, name := range names {
		n, err := r.home.client.read(ctx, parent+"/"+name)
		switch {
		case errors.Is(err, registry.ErrRefused):
			refused = cmp.Or(refused, err)
		case err != nil:
			return nil, err
		case n.stat != nil: // else it was deleted since
			all[name] = string(n.data)
		}
	}
	return all, refused
}

// Record implements registry.Recorder. If one transaction cannot replace all texts,
// because a node is missing, is refused or the request would be too large, each is a
// request of its own, several in flight at a time.
func (r recorder) Record(ctx context.Context, kind string, texts map[string]string) error {
	if r.replace(ctx, kind, texts) {
		return nil
	}
	var mu sync.Mutex
	refused := make(registry.Refused)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readAhead)
	for name, text := range texts {
		g.Go(func() error {
			err := r.store(ctx, kind+"/"+name, text)
			if errors.Is(err, registry.ErrRefused) {
				mu.Lock()
				defer mu.Unlock()
				refused[name] = err
				return nil
			}
			return err
		})
	}
	return cmp.Or(g.Wait(), refused.Err())
}

// replace replaces several texts in one transaction, and reports whether it did.
func (r recorder) replace(ctx context.Context, kind string, texts map[string]string) bool {
	var ops []any
	size := 0
	for name, text := range texts {
		path := r.home.request(kind+"/"+name, text, zk.FlagPersistent).Path
		var op any = &zk.SetDataRequest{Path: path, Data: []byte(text), Version: -1}
		if text == "" {
			op = &zk.DeleteRequest{Path: path, Version: -1}
		}
		ops, size = append(ops, op), size+operationSize(op)
	}
	if len(ops) < 2 || len(ops) > maxOps || size > maxBytes {
		return false
	}
	_, err := r.home.client.multi(ctx, ops)
	return err == nil
}

func (r recorder) store(ctx context.Context, path, text string) error {
	create := r.home.request(path, text, zk.FlagPersistent)
	if err := checkSize(create); err != nil {
		return err
	}
	if text == "" {
		return r.home.client.delete(ctx, create.Path)
	}
	return r.home.client.store(ctx, create)
}

// A Record is one node that the replicas of an owner change by compare and
// swap, each over a client of its own: the lease of one target.
type Record struct {
	client *Client
	path   string
	acl    []zk.ACL
}

// NewRecord returns the record of a target of an owner.
func NewRecord(client *Client, owner, target string, access Access) (*Record, error) {
	if client == nil || owner == "" || target == "" {
		return nil, errors.New("zookeeper record: a client, an owner or a target is missing")
	}
	h := newHome(client, owner, access)
	return &Record{client, h.node(leasesNode + "/" + url.PathEscape(target)), h.acl}, nil
}

// Load returns the record and its version; nothing and no version if there is none.
func (r *Record) Load(ctx context.Context) ([]byte, string, error) {
	n, err := r.client.read(ctx, r.path)
	if err != nil || n.stat == nil {
		return nil, "", err
	}
	return n.data, strconv.FormatInt(int64(n.stat.Version), 10), nil
}

// Save replaces the record if it still has a version, and creates it if the version
// is empty. It returns registry.ErrConflict if another replica was faster.
func (r *Record) Save(ctx context.Context, record []byte, version string) error {
	var op any = &zk.CreateRequest{Path: r.path, Data: record, Acl: r.acl}
	if version == "" {
		parent := &zk.CreateRequest{Path: parentOf(r.path), Data: []byte{}, Acl: r.acl}
		if err := r.client.createAll(ctx, parent); err != nil {
			return err
		}
	} else {
		v, err := strconv.ParseInt(version, 10, 32)
		if err != nil {
			return fmt.Errorf("version %q of %s: %w", version, r.path, err)
		}
		op = &zk.SetDataRequest{Path: r.path, Data: record, Version: int32(v)}
	}
	switch err := r.client.do(ctx, op); {
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("%s: %w", r.path, registry.ErrConflict)
	case err != nil:
		return fmt.Errorf("write %s: %w", r.path, err)
	}
	return nil
}
