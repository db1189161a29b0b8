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

// The nodes that a bridge keeps for itself:
//
//	/xds-bridge/id                  the registry's own id, made once by whoever comes first
//	/xds-bridge/<owner>/alive       ephemeral, there while a bridge of the owner lives
//	/xds-bridge/<owner>/bridges     which bridges wrote as the owner, by which a changed owner is noticed
//	/xds-bridge/<owner>/ledger/…    the tags of its entries, see ledger
//	/xds-bridge/<owner>/leases/…    which replica leads each target of the owner, where they keep it here
//	/xds-bridge/<owner>/fence       which replica may write here, and in which term
//	/xds-bridge/<owner>/session     there once a bridge of the owner has written ephemeral entries
//	/xds-bridge/<owner>/probe-<x>   ephemeral, written and deleted by Check
const home = "/xds-bridge"

func (t *Target) home() string { return homeOf(t.opts.Owner) }

func homeOf(owner string) string { return home + "/" + url.PathEscape(owner) }

// own returns the request for a node of the bridge's own.
func (t *Target) own(name, data string, flags int32) *zk.CreateRequest {
	return &zk.CreateRequest{Path: t.home() + "/" + name, Data: []byte(data), Acl: t.acl(), Flags: flags}
}

// A known is what was found or made in a session. In another one the registry
// may have less, as after a restore, so that it has to be looked at once more.
type known struct {
	mu      sync.Mutex
	session int64
	value   bool
}

// get returns what is known in a session, and whether anything is.
func (k *known) get(session int64) (value, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ok = session != 0 && k.session == session
	return k.value && ok, ok
}

func (k *known) set(session int64, value bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.session, k.value = session, value
}

// mayBeEphemeral reports whether nodes of ours have to be asked for their
// lifetime: always for the lifetime Session, and else only where a bridge of
// the owner ever wrote ephemeral ones, which a marker says. It is what
// makes listing a parent enough for everybody else.
func (t *Target) mayBeEphemeral(ctx context.Context) (bool, error) {
	if t.opts.Lifetime == Session {
		return true, nil
	}
	session := t.client.State().Session
	if marked, ok := t.marked.get(session); ok {
		return marked, nil
	}
	stat, err := t.client.exists(ctx, t.home()+"/session")
	if err != nil {
		return false, err
	}
	t.marked.set(session, stat != nil)
	return stat != nil, nil
}

// markSession leaves the marker before the first ephemeral entry is written.
func (t *Target) markSession(ctx context.Context) error {
	session := t.client.State().Session
	if marked, _ := t.marked.get(session); marked || t.opts.Lifetime == Persistent {
		return nil
	}
	if err := t.client.make(ctx, t.own("session", "", zk.FlagPersistent)); err != nil {
		return err
	}
	t.marked.set(session, true)
	return nil
}

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

// acl returns the ACL of what the target writes.
func (t *Target) acl() []zk.ACL { return t.opts.Access.acl() }

// aclAbove returns the ACL of a node that is made because another with an ACL
// lies below it. The bridge's own are for the same; others may make theirs in
// the one for all owners, and not delete there. All else stays open, because
// clients make their own nodes in it.
func aclAbove(path string, below []zk.ACL) []zk.ACL {
	open := slices.Contains(below, zk.WorldACL(zk.PermAll)[0])
	switch {
	case open, path != home && !strings.HasPrefix(path, home+"/"):
		return zk.WorldACL(zk.PermAll)
	case path != home:
		return below
	}
	ours := slices.DeleteFunc(slices.Clone(below), func(a zk.ACL) bool { return a.Scheme == "world" })
	return append(ours, zk.WorldACL(zk.PermRead|zk.PermCreate)...)
}

// A Fence is the right to write as an owner. A node holds the term of who has
// it, and every transaction checks that node: once another has raised it to a
// later term, nothing that was sent under an earlier one is applied, however
// long it was under way.
type Fence struct {
	Term   int64  // of two, the later is the larger
	Holder string // who has it in that term
}

// content is what the node of a fence holds.
func (f Fence) content() string { return strconv.FormatInt(f.Term, 10) + " " + f.Holder }

// fenceNode is where the fence of an owner is, below what is its own.
const fenceNode = "fence"

// raised is the fence that the node was raised to by us.
type raised struct {
	mu      sync.Mutex
	fence   Fence // the zero value: none of ours
	version int32 // of the node
}

func (r *raised) get(want Fence) (int32, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version, r.fence == want && want != Fence{}
}

func (r *raised) set(f Fence, version int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fence, r.version = f, version
}

// raise makes what others still have under way come too late, if the target is
// ours to write: what is read after it stays so but for us.
func (t *Target) raise(ctx context.Context) error {
	if t.opts.Fence == nil {
		return nil
	}
	f, ours := t.opts.Fence()
	if !ours {
		return nil
	}
	_, err := t.raiseTo(ctx, f)
	return err
}

// fence returns the operation that checks that the target is still ours to
// write; none where nothing is fenced.
func (t *Target) fence(ctx context.Context) ([]any, error) {
	if t.opts.Fence == nil {
		return nil, nil
	}
	f, ours := t.opts.Fence()
	if !ours {
		return nil, fmt.Errorf("%w: this replica does not lead", registry.ErrFenced)
	}
	version, err := t.raiseTo(ctx, f)
	if err != nil {
		return nil, err
	}
	return []any{&zk.CheckVersionRequest{Path: t.home() + "/" + fenceNode, Version: version}}, nil
}

// raiseTo makes the node of the fence hold our term and returns its version.
func (t *Target) raiseTo(ctx context.Context, f Fence) (int32, error) {
	if version, ok := t.raised.get(f); ok {
		return version, nil
	}
	path := t.home() + "/" + fenceNode
	for range attempts {
		n, err := t.client.get(ctx, path)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			err = t.client.make(ctx, t.own(fenceNode, "0 nobody", zk.FlagPersistent))
		case err != nil:
		case string(n.data) == f.content():
			t.raised.set(f, n.stat.Version)
			return n.stat.Version, nil
		default:
			if err = f.above(path, string(n.data)); err == nil {
				_, err = t.client.multi(ctx, []any{&zk.SetDataRequest{Path: path, Data: []byte(f.content()), Version: n.stat.Version}})
			}
		}
		if err != nil && !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) {
			return 0, fmt.Errorf("raise %s: %w", path, err)
		}
	}
	return 0, fmt.Errorf("%w: %s does not keep still", registry.ErrConflict, path)
}

// above returns an error unless the term is later than the one a node holds.
func (f Fence) above(path, content string) error {
	text, holder, _ := strings.Cut(content, " ")
	term, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %s holds %.80q, which is no term; delete the node", registry.ErrRefused, path, content)
	}
	if term >= f.Term {
		return fmt.Errorf("%w: %s has it in term %d, ours is %d; if that one and its replicas do not run any more, delete %s",
			registry.ErrFenced, holder, term, f.Term, path)
	}
	return nil
}

// mendFence finds out why the check of the fence failed, nil where it is worth
// another attempt.
func (w *writing) mendFence(ctx context.Context) error {
	if _, ours := w.target.opts.Fence(); !ours {
		return fmt.Errorf("%w while the write was under way", registry.ErrFenced)
	}
	w.target.raised.set(Fence{}, 0)
	var err error
	w.check, err = w.target.fence(ctx)
	return err
}
