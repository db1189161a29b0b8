package metadata

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// SignedLen is the number of bytes that a signature adds to a mark.
const SignedLen = len(signed) + SignatureLen

// A Signer signs marks with a secret, so that nobody else can write an entry that
// counts as ours. The nil Signer signs nothing and trusts every mark.
type Signer struct{ keys [][]byte }

// NewSigner returns a signer that signs with the first key and accepts what any
// of them signed, so that keys can be rotated; nil if there is none.
func NewSigner(keys ...[]byte) *Signer {
	if len(keys) == 0 {
		return nil
	}
	s := &Signer{}
	for _, k := range keys {
		s.keys = append(s.keys, slices.Clone(k))
	}
	return s
}

// Sign returns an entry with its mark signed; one without a mark unchanged.
func (s *Signer) Sign(e registry.Entry) registry.Entry {
	if s == nil {
		return e
	}
	return Remark(e, func(m Mark) Mark {
		m.Signature = sign(s.keys[0], e, m)
		return m
	})
}

// Refuse returns why the mark of an entry is not trusted; empty if it is.
func (s *Signer) Refuse(e registry.Entry, m Mark) string {
	switch {
	case s == nil:
		return ""
	case m.Signature == "":
		return unsigned
	case !slices.ContainsFunc(s.keys, func(k []byte) bool {
		return hmac.Equal([]byte(m.Signature), []byte(sign(k, e, m)))
	}):
		return otherKey
	}
	return ""
}

// Disowned returns what Signer.Owner returns for entries that have the mark of an
// owner and are not trusted.
func Disowned(owner string) []string {
	return []string{owner + " (" + unsigned + ")", owner + " (" + otherKey + ")"}
}

// The reasons not to trust a mark.
const (
	unsigned = "not signed"
	otherKey = "signed with another key"
)

// Owner returns the owner of an entry with a mark, as registry.Held.Owner has it.
// If the mark is ours and not trusted, that is another owner with the reason.
func (s *Signer) Owner(e registry.Entry, m Mark, ours string) string {
	if m.Owner != ours {
		return m.Owner
	}
	if reason := s.Refuse(e, m); reason != "" {
		return m.Owner + " (" + reason + ")"
	}
	return m.Owner
}

// sign returns the signature of a mark and of the entry's identity.
func sign(key []byte, e registry.Entry, m Mark) string {
	mac := hmac.New(sha256.New, key)
	for _, part := range []string{
		"xdsb1", m.Owner, m.Bridge, string(m.Path),
		e.Group.Kind, e.Group.Namespace, e.Group.Group, e.Group.Name, e.Key,
	} {
		mac.Write([]byte(part))
		mac.Write([]byte{0})
	}
	return digits(mac.Sum(nil), SignatureLen)
}

// Tags returns hashes of an entry without its mark, by which it is recognised if
// another tool removed the mark. There is one for each key, the current one first.
func (s *Signer) Tags(e registry.Entry) [][TagLen]byte {
	keys := [][]byte{nil}
	if s != nil {
		keys = s.keys
	}
	tags := make([][TagLen]byte, 0, len(keys))
	for _, k := range keys {
		mac := hmac.New(sha256.New, k)
		for _, part := range []string{"xdsb1 tag", e.Group.Kind, e.Group.Namespace, e.Group.Group, e.Group.Name, e.Key, Bare(e).Value} {
			mac.Write([]byte(part))
			mac.Write([]byte{0})
		}
		tags = append(tags, [TagLen]byte(mac.Sum(nil)))
	}
	return tags
}

// TagLen is the length of a tag, in bytes.
const TagLen = 8

func digits(sum []byte, n int) string {
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:20]))[:n]
}
