package zookeeper

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// ephemerals knows the session that holds the entries of a target.
type ephemerals struct {
	home     *home
	lifetime Lifetime
	marked   sessionFact // whether the marker exists
}

// session returns the session that holds the entries that are written now; 0 for none.
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

// possible reports whether our nodes may be ephemeral, so that their stats have to be read:
// for the lifetime Session, or if the marker shows that a bridge of the owner once wrote
// ephemeral nodes. Otherwise the list of a parent is enough.
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

// mark creates the marker before the first ephemeral node is written.
func (e *ephemerals) mark(ctx context.Context) error {
	if e.lifetime == Persistent {
		return nil
	}
	return e.home.client.createAll(ctx, e.home.request(sessionNode, "", zk.FlagPersistent))
}
