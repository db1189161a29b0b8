// Package metadata holds what is written about services beside their
// addresses: whose an entry is and which way it came (Mark), and which service
// key lives at which host address (the interface mapping). It is pure: no
// I/O, no time. Its parents hold one codec per format.
package metadata

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// MarkKey is the name under which every format stores the mark: a URL query
// parameter or a metadata key.
const MarkKey = "xdsb"

// The lengths of the parts of a mark, in bytes.
const (
	OwnerLen     = 6
	BridgeLen    = 3
	MaxHops      = 4
	SignatureLen = 8
)

// signed is before a signature. It is none of the digits, and needs no
// escaping anywhere.
const signed = "."

// ErrMark is wrapped by every error about a mark that cannot be read.
var ErrMark = errors.New("not an owner mark")

// Mark says whose an entry is and which registries it passed. Written it is
// owner, bridge and up to MaxHops hops without separators and, where a Signer
// vouches for it, a full stop and the signature: at most 34 bytes of
// [0-9a-v.], so that it fits a URL, a label and a JSON string unescaped; it is
// the same on every replica.
type Mark struct {
	Owner     string // Fingerprint of the owner id, OwnerLen bytes
	Bridge    string // Fingerprint of the bridge's name, BridgeLen bytes
	Path      registry.Path
	Signature string // SignatureLen bytes, or empty; see Signer
}

// NewMark returns the mark of a bridge without a path.
func NewMark(owner, bridge string) Mark {
	return Mark{Owner: OwnerMark(owner), Bridge: Fingerprint(bridge, BridgeLen)}
}

// ownerPrefix is before the mark of an owner whose name is not known. No
// name of an owner holds a colon.
const ownerPrefix = "mark:"

// OwnerMark returns what marks the entries of an owner. An owner whose name
// is not known is named as UnnamedOwner does it.
func OwnerMark(owner string) string {
	if mark, ok := strings.CutPrefix(owner, ownerPrefix); ok {
		return mark
	}
	return Fingerprint(owner, OwnerLen)
}

// UnnamedOwner names the owner of entries by their mark, which is all that
// they report it.
func UnnamedOwner(mark string) string { return ownerPrefix + mark }

// IsUnnamed reports whether an owner is named by a mark.
func IsUnnamed(owner string) bool {
	mark, ok := strings.CutPrefix(owner, ownerPrefix)
	m, err := ParseMark(mark + "000")
	return ok && err == nil && m.Owner == mark
}

// Of returns the mark of an endpoint with the path that it came, empty where
// the mark has no owner.
func (m Mark) Of(s *registry.Service, e *registry.Endpoint) (string, error) {
	if m.Owner == "" {
		return "", nil
	}
	m.Path = cmp.Or(e.Path, s.Path)
	if m.Path.Hops() > MaxHops {
		return "", fmt.Errorf("passed %d registries, at most %d", m.Path.Hops(), MaxHops)
	}
	return m.String(), nil
}

// Hop returns the hop that a registry's id stands as in a path.
func Hop(registryID string) string { return Fingerprint(registryID, registry.HopLen) }

// Fingerprint returns the first n characters of the hash of s in the digits
// [0-9a-v]; n is at most 32.
func Fingerprint(s string, n int) string {
	sum := sha256.Sum256([]byte(s))
	return digits(sum[:], n)
}

// String returns the mark as it is stored.
func (m Mark) String() string {
	s := m.Owner + m.Bridge + string(m.Path)
	if m.Signature != "" {
		s += signed + m.Signature
	}
	return s
}

// ParseMark reads a stored mark. The error wraps ErrMark.
func ParseMark(s string) (Mark, error) {
	const fixed = OwnerLen + BridgeLen
	what, signature, isSigned := strings.Cut(s, signed)
	if len(what) < fixed || (len(what)-fixed)%registry.HopLen != 0 || len(what) > fixed+MaxHops*registry.HopLen ||
		isSigned && len(signature) != SignatureLen {
		return Mark{}, fmt.Errorf("%w: %.80q: %d bytes long", ErrMark, s, len(s))
	}
	for _, r := range what + signature {
		if (r < '0' || r > '9') && (r < 'a' || r > 'v') {
			return Mark{}, fmt.Errorf("%w: %q: %q is none of its digits", ErrMark, s, r)
		}
	}
	return Mark{Owner: what[:OwnerLen], Bridge: what[OwnerLen:fixed], Path: registry.Path(what[fixed:]), Signature: signature}, nil
}
