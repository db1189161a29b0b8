package ads

import (
	"hash/maphash"
)

// digest identifies the bytes of a resource, so that they are not kept. It is valid
// in this process only.
type digest [2]uint64

// hasher makes digests. Its seeds are secret, so that two resources
// of the same digest cannot be made.
type hasher [2]maphash.Seed

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

func (h hasher) sum(data []byte) digest {
	return digest{maphash.Bytes(h[0], data), maphash.Bytes(h[1], data)}
}
