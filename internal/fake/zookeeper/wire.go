package zookeeper

import (
	"encoding/binary"
	"errors"
)

var errShort = errors.New("packet is shorter than its length fields")

// decoder reads jute, ZooKeeper's encoding. After the first error every result is zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) next(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.err = errShort
		return nil
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) int32() int32 {
	if b := d.next(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if b := d.next(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (d *decoder) bool() bool {
	b := d.next(1)
	return b != nil && b[0] != 0
}

// bytes returns a copy; nil if the length is -1.
func (d *decoder) bytes() []byte {
	n := d.int32()
	if n < 0 {
		return nil
	}
	b := d.next(int(n))
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

func (d *decoder) string() string { return string(d.bytes()) }

func (d *decoder) acl() []ACL {
	var out []ACL
	for n := d.int32(); n > 0 && d.err == nil; n-- {
		out = append(out, ACL{Perms: d.int32(), Scheme: d.string(), ID: d.string()})
	}
	return out
}

// encoder appends jute to a packet.
type encoder struct{ b []byte }

func (e *encoder) int32(v int32) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) int64(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }

// byte encodes a boolean of the protocol: 0 or 1.
func (e *encoder) byte(v byte) { e.b = append(e.b, v) }

func (e *encoder) bytes(v []byte) {
	if v == nil {
		e.int32(-1)
		return
	}
	e.int32(int32(len(v)))
	e.b = append(e.b, v...)
}

func (e *encoder) string(v string) {
	e.int32(int32(len(v)))
	e.b = append(e.b, v...)
}

func (e *encoder) strings(v []string) {
	e.int32(int32(len(v)))
	for _, s := range v {
		e.string(s)
	}
}

func (e *encoder) acl(v []ACL) {
	e.int32(int32(len(v)))
	for _, a := range v {
		e.int32(a.Perms)
		e.string(a.Scheme)
		e.string(a.ID)
	}
}

func (e *encoder) stat(s Stat) {
	e.int64(s.Czxid)
	e.int64(s.Mzxid)
	e.int64(s.Ctime)
	e.int64(s.Mtime)
	e.int32(s.Version)
	e.int32(s.Cversion)
	e.int32(s.Aversion)
	e.int64(s.EphemeralOwner)
	e.int32(s.DataLength)
	e.int32(s.NumChildren)
	e.int64(s.Pzxid)
}

// packet returns the encoded packet, with its length in the first bytes.
func (e *encoder) packet() []byte {
	binary.BigEndian.PutUint32(e.b, uint32(len(e.b)-4))
	return e.b
}

func newPacket() *encoder { return &encoder{b: make([]byte, 4, 128)} }
