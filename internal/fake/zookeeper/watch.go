package zookeeper

// watch remembers that the connection is to be notified once of a change. The
// caller holds the server's lock, as all here.
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

// notify notifies the connection of a change that it watches.
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

// remove removes a path from a set, and reports whether it was there.
func remove(set map[string]struct{}, path string) bool {
	_, ok := set[path]
	delete(set, path)
	return ok
}
