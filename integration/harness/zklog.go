package harness

import (
	"cmp"
	"encoding/binary"
	"hash/adler32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// The codes of ZooKeeper's log next to those of requests.
const (
	opCloseSession = -11
)

// A ZooKeeperTransaction is a change that took effect, as the server keeps it
// in its log.
type ZooKeeperTransaction struct {
	At      time.Time // in whole milliseconds, at most one too early
	Zxid    int64     // their order
	Session int64     // whose it is
	Writes  []ZooKeeperWrite
	Checks  []ZooKeeperCheck // what it was made conditional on
	Ended   bool             // the session ended, and these writes with it
}

// A ZooKeeperCheck is a znode that had a version for a transaction to be.
type ZooKeeperCheck struct {
	Path    string
	Version int
}

// A ZooKeeperLog reads the logs of servers of one ensemble as they grow.
type ZooKeeperLog struct {
	servers []*ZooKeeper
	read    map[string]int64 // by file, how far
	last    int64            // zxid of the last transaction that was returned
}

// Log returns the log of the transactions of servers that are one ensemble.
func Log(servers ...*ZooKeeper) *ZooKeeperLog {
	return &ZooKeeperLog{servers: servers, read: make(map[string]int64)}
}

// Next returns what took effect since the last call, in order. Of several
// servers none has to have everything: one that was away gets a snapshot.
func (l *ZooKeeperLog) Next(t testing.TB) []ZooKeeperTransaction {
	t.Helper()
	found := make(map[int64]ZooKeeperTransaction)
	for _, server := range l.servers {
		files, err := filepath.Glob(filepath.Join(server.dir, "data", "version-2", "log.*"))
		must(t, err)
		for _, file := range files {
			l.follow(t, file, found)
		}
	}
	var all []ZooKeeperTransaction
	for zxid, one := range found {
		if zxid > l.last {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b ZooKeeperTransaction) int { return cmp.Compare(a.Zxid, b.Zxid) })
	if len(all) > 0 {
		l.last = all[len(all)-1].Zxid
	}
	return all
}

// follow reads a file from where it was read to: its head, then of each
// transaction a checksum, a length, the transaction and the letter B.
func (l *ZooKeeperLog) follow(t testing.TB, path string, found map[int64]ZooKeeperTransaction) {
	t.Helper()
	const head, prefix = 16, 12
	file, err := os.Open(path)
	if err != nil {
		return // its server was wiped
	}
	defer func() { _ = file.Close() }() // nothing is written
	at := max(head, l.read[path])
	for {
		lengths := make([]byte, prefix)
		if _, err := file.ReadAt(lengths, at); err != nil {
			break
		}
		length := int64(binary.BigEndian.Uint32(lengths[8:]))
		if length == 0 || length > 64<<20 {
			break // the room beyond the end
		}
		body := make([]byte, length+1)
		if _, err := file.ReadAt(body, at+prefix); err != nil && err != io.EOF {
			break
		}
		if body[length] != 'B' || binary.BigEndian.Uint64(lengths) != uint64(adler32.Checksum(body[:length])) {
			break // half written
		}
		one := transaction(record{rest: body[:length]})
		found[one.Zxid] = one
		at += prefix + length + 1
	}
	l.read[path] = at
}

// transaction reads the head of a transaction and what it did.
func transaction(fields record) ZooKeeperTransaction {
	one := ZooKeeperTransaction{Session: fields.long()}
	fields.int() // the number of the request
	one.Zxid, one.At = fields.long(), time.UnixMilli(fields.long())
	one.did(fields.int(), &fields)
	return one
}

func (x *ZooKeeperTransaction) did(operation int, fields *record) {
	switch operation {
	case opCreate, opCreate2, opContainer, opTTL:
		x.Writes = append(x.Writes, ZooKeeperWrite{Operation: "create", Path: fields.string()})
	case opDelete:
		x.Writes = append(x.Writes, ZooKeeperWrite{Operation: "delete", Path: fields.string()})
	case opSetData:
		x.Writes = append(x.Writes, ZooKeeperWrite{Operation: "set", Path: fields.string(), Data: fields.string()})
	case opCheck:
		x.Checks = append(x.Checks, ZooKeeperCheck{fields.string(), fields.int()})
	case opCloseSession:
		x.Ended = true
		for n := fields.int(); n > 0 && !fields.broken; n-- {
			x.Writes = append(x.Writes, ZooKeeperWrite{Operation: "delete", Path: fields.string()})
		}
	case opMulti:
		for n := fields.int(); n > 0 && !fields.broken; n-- {
			part := fields.int()
			x.did(part, &record{rest: []byte(fields.string())})
		}
	}
}

func (r *record) long() int64 { return int64(binary.BigEndian.Uint64(r.next(8))) }
