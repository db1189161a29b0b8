package zookeeper

import (
	"context"
	"maps"
	"slices"
	"time"
)

// xidWatch is the request id of watch events.
const xidWatch int32 = -1

// handle executes a request and answers it. An error ends the connection.
func (c *conn) handle(r request) error {
	if !c.server.touch(c.session) {
		c.reply(r, 0, errSessionExpired, nil)
		return c.finish()
	}
	f := c.server.consult(Request{Session: c.session.id, Op: r.op, Paths: r.paths()})
	if !c.pause(f.Delay) || f.Cut == CutBefore {
		return errClosed
	}
	switch {
	case f.Code != 0:
		c.reply(r, 0, code(f.Code), nil)
		return nil
	case r.op == OpClose:
		c.server.mu.Lock()
		c.server.end(c.session)
		c.server.mu.Unlock()
		c.reply(r, 0, errOK, nil)
		return c.finish()
	}
	return c.do(r, f.Cut)
}

// do executes a request and sends its answer with the server's lock held, so that a client receives
// a change after the answer that armed its watch.
func (c *conn) do(r request, cut Cut) error {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	body := &encoder{}
	var err code
	if r.op.writes() {
		err = c.commit(r, body)
	} else {
		err = c.query(r, body)
	}
	if cut == CutAfter {
		return errClosed
	}
	c.reply(r, s.tree.zxid, err, body.b)
	if err == errAuthFailed {
		c.out.end()
	}
	return nil
}

// commit executes a request that may change the tree, completely or not at all. The caller holds
// the lock.
func (c *conn) commit(r request, e *encoder) code {
	s := c.server
	s.tree.begin()
	err := c.change(r, e)
	if err != errOK || len(s.tree.undo) == 0 {
		s.tree.rollback()
		return err
	}
	s.changes++
	s.committed()
	return errOK
}

// change executes a request that may change the tree. The caller holds the lock.
func (c *conn) change(r request, e *encoder) code {
	if r.op != OpMulti {
		return c.changeOne(r, e)
	}
	answers := &encoder{}
	for i, sub := range r.multi {
		at := len(answers.b)
		answers.int32(int32(sub.op))
		answers.byte(0)
		answers.int32(0)
		if err := c.changeOne(sub, answers); err != errOK {
			answers.b = answers.b[:at]
			c.server.tree.rollback()
			multiError(e, len(r.multi), i, err)
			return errOK
		}
	}
	e.b = append(e.b, answers.b...)
	multiEnd(e)
	return errOK
}

// multiError encodes the answer to a transaction in which one operation failed.
func multiError(e *encoder, ops, failed int, err code) {
	for i := range ops {
		result := errInconsistent
		switch {
		case i < failed:
			result = errOK
		case i == failed:
			result = err
		}
		e.int32(-1)
		e.byte(0)
		e.int32(int32(result))
		e.int32(int32(result))
	}
	multiEnd(e)
}

func multiEnd(e *encoder) {
	e.int32(-1)
	e.byte(1)
	e.int32(-1)
}

func (c *conn) changeOne(r request, e *encoder) code {
	t := c.server.tree
	if !validPath(r.path) {
		return errBadArguments
	}
	switch r.op {
	case OpCreate:
		e.string(r.path)
		return t.create(c.who(), r)
	case OpDelete:
		return t.remove(c.who(), r.path, r.version)
	case OpSetData:
		stat, err := t.set(c.who(), r.path, r.data, r.version)
		e.stat(stat)
		return err
	case OpCheck:
		return t.check(c.who(), t.nodes[r.path], PermRead, r.version)
	case OpSetACL:
		return c.setACL(r, e)
	default:
		return errUnimplemented
	}
}

func (c *conn) setACL(r request, e *encoder) code {
	n := c.server.tree.nodes[r.path]
	if n == nil {
		return errNoNode
	}
	acl, err := fixACL(r.acl, c.ids)
	switch {
	case !c.who().may(n, PermAdmin):
		return errNoAuth
	case err != errOK:
		return err
	case r.version != -1 && r.version != n.stat.Aversion:
		return errBadVersion
	}
	before, old := n.stat, n.acl
	n.acl = acl
	n.stat.Aversion++
	c.server.tree.undo = append(c.server.tree.undo, func() { n.stat, n.acl = before, old })
	e.stat(n.snapshot())
	return errOK
}

// query executes a request that does not change the tree. The caller holds the lock.
func (c *conn) query(r request, e *encoder) code {
	switch r.op {
	case OpPing:
		return errOK
	case OpAuth:
		return c.authenticate(r)
	case OpSync:
		c.past = nil
		e.string(r.path)
		return errOK
	case OpExists, OpGetData, OpGetACL, OpGetChildren2:
		return c.queryNode(r, e)
	default:
		return errUnimplemented
	}
}

func (c *conn) queryNode(r request, e *encoder) code {
	seen := c.server.tree
	if c.past != nil {
		seen = c.past
	}
	n := seen.nodes[r.path]
	switch {
	case !validPath(r.path):
		return errBadArguments
	case n != nil && r.op != OpExists && !c.who().may(n, PermRead):
		return errNoAuth
	case r.watch && (n != nil || r.op == OpExists):
		c.watch(r)
	}
	if n == nil {
		return errNoNode
	}
	show(r.op, n, e)
	return errOK
}

// show encodes the requested part of a node.
func show(op Op, n *node, e *encoder) {
	switch op {
	case OpGetData:
		e.bytes(n.data)
	case OpGetACL:
		e.acl(n.acl)
	case OpGetChildren2:
		e.strings(slices.Collect(maps.Keys(n.children))) // in no order, as on a real server
	default: // OpExists returns only the stat
	}
	e.stat(n.snapshot())
}

func (c *conn) authenticate(r request) code {
	if r.scheme != "digest" {
		return errAuthFailed
	}
	id := identity{"digest", digest(string(r.data))}
	if !slices.Contains(c.ids, id) {
		c.ids = append(c.ids, id)
	}
	return errOK
}

func (c *conn) who() who { return who{session: c.session.id, ids: c.ids} }

func (c *conn) reply(r request, zxid int64, err code, body []byte) {
	e := newPacket()
	e.int32(r.xid)
	e.int64(zxid)
	e.int32(int32(err))
	if err == errOK {
		e.b = append(e.b, body...)
	}
	c.send(e.packet())
}

// pause waits for a time, or until the connection is cut.
func (c *conn) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	select {
	case <-ctx.Done():
		return true
	case <-c.gone:
		return false
	}
}

// consult counts a request and returns its fault.
func (s *Server) consult(r Request) Fault {
	s.mu.Lock()
	s.counts[r.Op]++
	fault := s.fault
	s.mu.Unlock()
	if fault == nil {
		return Fault{}
	}
	return fault(r)
}

// watch arms a watch of the connection for one change. The caller holds the server's lock, as below.
func (c *conn) watch(r request) {
	set := &c.onData
	if r.op == OpGetChildren2 {
		set = &c.onList
	}
	if _, armed := (*set)[r.path]; armed {
		c.server.rearmed++
	}
	*set = add(*set, r.path)
}

// notify sends the event of a change if the connection watches it.
func (c *conn) notify(e event) {
	notified := false
	if e.kind != eventChildrenChanged {
		notified = remove(c.onData, e.path)
	}
	if e.kind == eventChildrenChanged || e.kind == eventDeleted {
		notified = remove(c.onList, e.path) || notified
	}
	if notified {
		c.sendEvent(e)
	}
}

// sendEvent queues the packet of an event.
func (c *conn) sendEvent(e event) {
	p := newPacket()
	p.int32(xidWatch)
	p.int64(-1)
	p.int32(0)
	p.int32(e.kind)
	p.int32(3) // connected
	p.string(e.path)
	c.send(p.packet())
}

func add(set map[string]struct{}, path string) map[string]struct{} {
	if set == nil {
		set = make(map[string]struct{})
	}
	set[path] = struct{}{}
	return set
}

// remove removes a path from a set, and returns whether the set contained it.
func remove(set map[string]struct{}, path string) bool {
	_, ok := set[path]
	delete(set, path)
	return ok
}
