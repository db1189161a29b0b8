package zookeeper

import (
	"context"

	"github.com/go-zookeeper/zk"
)

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

func (e *ephemerals) mark(ctx context.Context) error {
	if e.lifetime == Persistent {
		return nil
	}
	return e.home.client.createAll(ctx, e.home.request(sessionNode, "", zk.FlagPersistent))
}
