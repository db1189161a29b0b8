package zookeeper

import "fmt"

// Op is the code of an operation in the protocol.
type Op int32

// The operations of the server.
const (
	OpCreate       Op = 1
	OpDelete       Op = 2
	OpExists       Op = 3
	OpGetData      Op = 4
	OpSetData      Op = 5
	OpGetACL       Op = 6
	OpSetACL       Op = 7
	OpSync         Op = 9
	OpPing         Op = 11
	OpGetChildren2 Op = 12
	OpCheck        Op = 13
	OpMulti        Op = 14
	OpClose        Op = -11
	OpAuth         Op = 100
)

// writes reports whether a request may change the tree.
func (o Op) writes() bool {
	switch o {
	case OpCreate, OpDelete, OpSetData, OpSetACL, OpMulti:
		return true
	default:
		return false
	}
}

// request is a decoded request. Only the fields of its operation are set.
type request struct {
	xid     int32
	op      Op
	path    string
	data    []byte
	acl     []ACL
	flags   int32
	version int32
	watch   bool
	scheme  string
	multi   []request
}

// maxOps bounds a transaction, so that a short packet cannot request much work.
const maxOps = 100_000

// decodeRequest reads a packet without its length.
func decodeRequest(b []byte) (request, error) {
	d := &decoder{b: b}
	r := request{xid: d.int32(), op: Op(d.int32())}
	switch r.op {
	case OpPing, OpClose:
	case OpMulti:
		r.decodeMulti(d)
	case OpAuth:
		d.int32()
		r.scheme, r.data = d.string(), d.bytes()
	default:
		r.decodeBody(d)
	}
	if d.err != nil {
		return r, fmt.Errorf("request %d: %w", r.op, d.err)
	}
	return r, nil
}

func (r *request) decodeBody(d *decoder) {
	r.path = d.string()
	switch r.op {
	case OpCreate:
		r.data, r.acl, r.flags = d.bytes(), d.acl(), d.int32()
	case OpDelete, OpCheck:
		r.version = d.int32()
	case OpSetData:
		r.data, r.version = d.bytes(), d.int32()
	case OpSetACL:
		r.acl, r.version = d.acl(), d.int32()
	case OpExists, OpGetData, OpGetChildren2:
		r.watch = d.bool()
	default: // there is only the path, or the operation is unknown
	}
}

func (r *request) decodeMulti(d *decoder) {
	for d.err == nil && len(r.multi) < maxOps {
		op, done := Op(d.int32()), d.bool()
		d.int32()
		if done {
			return
		}
		sub := request{op: op}
		sub.decodeBody(d)
		r.multi = append(r.multi, sub)
	}
	if d.err == nil {
		d.err = errShort
	}
}

// paths returns every path in a request.
func (r *request) paths() []string {
	if r.op != OpMulti {
		return []string{r.path}
	}
	var out []string
	for _, sub := range r.multi {
		out = append(out, sub.path)
	}
	return out
}
