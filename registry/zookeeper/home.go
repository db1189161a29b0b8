package zookeeper

import (
	"context"
	"net/url"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
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

// aliveInterval is how often KeepAlive looks after its node. A second bridge
// of the owner takes over within it.
const aliveInterval = 10 * time.Second

// KeepAlive keeps the ephemeral node that shows that a bridge of the owner
// lives, until ctx ends; the node goes with the client's session. What it
// cannot write it logs once, and Hidden reports that it is refused.
func (t *Target) KeepAlive(ctx context.Context) {
	lost, stop := t.client.onLost()
	defer stop()
	ticker := time.NewTicker(aliveInterval)
	defer ticker.Stop()
	failed := false
	for {
		err := t.client.make(ctx, t.own("alive", t.aliveText(), zk.FlagEphemeral))
		if err != nil && !failed && ctx.Err() == nil {
			t.opts.Log.Warn("cannot show that the bridge lives", "err", err)
		}
		failed = err != nil
		t.admission.hide(err)
		select {
		case <-ctx.Done():
			return
		case <-lost:
		case <-ticker.C:
		}
	}
}

// Hidden returns why another bridge of the owner does not see that this one
// lives, and so is not refused; nil while nobody refuses to show it.
func (t *Target) Hidden() error {
	t.admission.mu.Lock()
	defer t.admission.mu.Unlock()
	return t.admission.hidden
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
