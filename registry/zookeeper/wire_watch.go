package zookeeper

import (
	"context"
	"encoding/binary"
	"fmt"
)

// The library keeps a channel for each watch that it arms. After a reconnect it arms all of
// them again, from a position in the log that may be behind a change that it has not
// reported. Over a connection that is made again, the wire therefore arms a watch without
// the library: it sets the flag in the request.

// arm makes the next request of a query arm a watch. If another request for the same query
// is sent first, that request arms the watch, which is then even earlier.
func (w *wire) arm(path string, kind queryKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watches == nil {
		w.watches = make(map[watchRequest]int)
	}
	w.watches[watchRequest{path, kind.op()}]++
}

// A watchRequest is a request that can arm a watch.
type watchRequest struct {
	path string
	op   uint32
}

// Operations of ZooKeeper's protocol.
const (
	opExists       = 3
	opGetData      = 4
	opGetChildren2 = 12
)

func (k queryKind) op() uint32 {
	switch k {
	case ofData:
		return opGetData
	case ofChildren:
		return opGetChildren2
	default:
		return opExists
	}
}

// armed returns a request with the flag that arms a watch, if arm was called for it:
//
//	length int32, xid int32, operation int32, path (with its length), watch bool
func (w *wire) armed(p []byte) []byte {
	const pathAt = 4 + 4 + 4 + 4
	if len(p) <= pathAt {
		return p
	}
	op, length := binary.BigEndian.Uint32(p[8:]), int(binary.BigEndian.Uint32(p[12:]))
	if op != opExists && op != opGetData && op != opGetChildren2 || len(p) != pathAt+length+1 {
		return p
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := watchRequest{string(p[pathAt : pathAt+length]), op}
	if w.watches[r] == 0 {
		return p
	}
	if w.watches[r]--; w.watches[r] == 0 {
		delete(w.watches, r)
	}
	p[len(p)-1] = 1
	return p
}

// queryArmed makes a query that arms a watch without the library.
func (c *Client) queryArmed(ctx context.Context, q query) (node, error) {
	q.watch = false
	return call(ctx, c.session, func(conn conn) (node, error) {
		c.mu.Lock()
		w := c.wire
		c.mu.Unlock()
		if w == nil {
			return node{}, fmt.Errorf("zookeeper: %w", errLost)
		}
		w.arm(conn.under(q.path), q.kind)
		return conn.query(q)
	})
}
