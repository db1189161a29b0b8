package metadata

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// SignedLen is how many bytes longer a mark becomes by its signature.
const SignedLen = len(signed) + SignatureLen

// A Signer vouches for marks with a secret: nobody without it can make an
// entry that we would take for ours. The nil Signer signs nothing and takes
// every mark at its word.
type Signer struct{ keys [][]byte }

// NewSigner returns a signer that signs with the first key and takes what any
// of them signed, so that keys can be rotated; nil where there is none.
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

// Sign returns an entry with its mark signed; one without a mark comes back
// as it is.
func (s *Signer) Sign(e registry.Entry) registry.Entry {
	if s == nil {
		return e
	}
	return Remark(e, func(m Mark) Mark {
		m.Signature = sign(s.keys[0], e, m)
		return m
	})
}

// Refuse says why the mark of an entry is not to be believed, empty where it
// is.
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

// Disowned returns what Signer.Owner returns for entries that bear the mark of an owner
// and are not believed.
func Disowned(owner string) []string {
	return []string{owner + " (" + unsigned + ")", owner + " (" + otherKey + ")"}
}

// Why a mark is not believed.
const (
	unsigned = "not signed"
	otherKey = "signed with another key"
)

// Owner returns whose an entry is that bears a mark, as registry.Held.Owner
// has it. A mark of the given owner that is not to be believed makes the
// entry somebody else's, and says why.
func (s *Signer) Owner(e registry.Entry, m Mark, ours string) string {
	if m.Owner != ours {
		return m.Owner
	}
	if reason := s.Refuse(e, m); reason != "" {
		return m.Owner + " (" + reason + ")"
	}
	return m.Owner
}

// sign returns the signature of all that a mark vouches for.
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

// Tags returns what identifies an entry but for its mark: by it an entry is
// known again whose mark another tool took off. There is one for each key,
// that of the current one first; without the key nobody can make one.
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
