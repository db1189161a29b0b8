package ads

import "hash/maphash"

// digest identifies the bytes of a resource, which are not kept. Digests of different
// processes cannot be compared.
type digest [2]uint64

// hasher computes digests. Its seeds are secret, so that an attacker cannot construct two
// resources with the same digest.
type hasher [2]maphash.Seed

func newHasher() hasher { return hasher{maphash.MakeSeed(), maphash.MakeSeed()} }

func (h hasher) sum(data []byte) digest {
	return digest{maphash.Bytes(h[0], data), maphash.Bytes(h[1], data)}
}
