package harness

import (
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
)

// ZooKeeper's codes of the operations that change something, and of those that
// are next to them in a multi.
const (
	opCreate    = 1
	opDelete    = 2
	opSetData   = 5
	opSetACL    = 7
	opCheck     = 13
	opMulti     = 14
	opCreate2   = 15
	opContainer = 19
	opTTL       = 21
)

// ZooKeeperWrite is one operation that a client asked for: create, delete, set,
// or acl. An operation of a multi counts as one of its own.
type ZooKeeperWrite struct {
	Operation, Path string
	Data            string // of a set that the server's log reports
}

// ZooKeeperProxy is a proxy before a ZooKeeper that records every write that
// passes.
type ZooKeeperProxy struct {
	*Proxy

	mu      sync.Mutex
	writes  []ZooKeeperWrite
	onWrite func(total int)
}

// StartZooKeeperProxy starts such a proxy for the length of the test.
func StartZooKeeperProxy(t testing.TB, target string) *ZooKeeperProxy {
	t.Helper()
	z := &ZooKeeperProxy{onWrite: func(int) {}}
	z.Proxy = startProxy(t, target, func() io.Writer { return &requests{see: z.record} })
	return z
}

// OnWrite has f called before a write is passed on, with the number of writes
// so far.
func (z *ZooKeeperProxy) OnWrite(f func(total int)) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.onWrite = f
}

// Writes returns the writes below a path since the last Forget, in their order.
func (z *ZooKeeperProxy) Writes(below string) []ZooKeeperWrite {
	z.mu.Lock()
	defer z.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(z.writes), func(w ZooKeeperWrite) bool {
		return w.Path != below && !strings.HasPrefix(w.Path, strings.TrimSuffix(below, "/")+"/")
	})
}

// Forget starts the record again.
func (z *ZooKeeperProxy) Forget() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.writes = nil
}

func (z *ZooKeeperProxy) record(w ZooKeeperWrite) {
	z.mu.Lock()
	z.writes = append(z.writes, w)
	total, call := len(z.writes), z.onWrite
	z.mu.Unlock()
	call(total)
}

// requests reads what one client sends: frames of a length and a body, of
// which the first opens the session.
type requests struct {
	see    func(ZooKeeperWrite)
	buffer []byte
	opened bool
}

// Write reads the next bytes. It never fails.
func (r *requests) Write(b []byte) (int, error) {
	r.buffer = append(r.buffer, b...)
	for len(r.buffer) >= 4 {
		end := 4 + int(binary.BigEndian.Uint32(r.buffer))
		if len(r.buffer) < end {
			break
		}
		if r.opened {
			r.request(record{rest: r.buffer[4:end]})
		}
		r.opened, r.buffer = true, r.buffer[end:]
	}
	return len(b), nil
}

// request reads a request: the transaction id, the operation and its fields.
func (r *requests) request(body record) {
	body.int()
	operation := body.int()
	if operation != opMulti {
		r.decode(operation, &body)
		return
	}
	for !body.broken {
		operation = body.int()
		done := body.bool()
		body.int() // an error code, unused in requests
		if done {
			return
		}
		r.decode(operation, &body)
	}
	r.see(ZooKeeperWrite{Operation: "unreadable", Path: "/"})
}

// decode reads the fields of one operation to their end, which matters inside a
// multi, and reports it where it is a write.
func (r *requests) decode(operation int, fields *record) {
	switch operation {
	case opCreate, opCreate2, opContainer, opTTL:
		r.see(ZooKeeperWrite{Operation: "create", Path: fields.string()})
		_ = fields.string() // data
		for range fields.int() {
			fields.int() // permissions
			_, _ = fields.string(), fields.string()
		}
		fields.int() // flags
	case opDelete, opCheck:
		path := fields.string()
		fields.int() // version
		if operation == opDelete {
			r.see(ZooKeeperWrite{Operation: "delete", Path: path})
		}
	case opSetData:
		r.see(ZooKeeperWrite{Operation: "set", Path: fields.string()})
		_ = fields.string() // data
		fields.int()        // version
	case opSetACL:
		r.see(ZooKeeperWrite{Operation: "acl", Path: fields.string()})
	}
}

// record reads ZooKeeper's encoding; past its end it is broken and reads zeros.
type record struct {
	rest   []byte
	broken bool
}

func (r *record) next(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.broken, r.rest = true, nil
		return make([]byte, 8)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *record) int() int   { return int(int32(binary.BigEndian.Uint32(r.next(4)))) }
func (r *record) bool() bool { return r.next(1)[0] != 0 }

// string reads a string or a byte slice; a nil one has the length -1.
func (r *record) string() string {
	if n := r.int(); n > 0 {
		return string(r.next(n))
	}
	return ""
}
