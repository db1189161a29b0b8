// Package metadata turns services into the entries of a target (Projection). A Mark names
// the owner of an entry and the registries that it passed. A Mapping maps service keys to
// host addresses. The package is pure: no I/O, no time. The packages below it contain the
// codecs of the formats.
package metadata

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/xds-bridge/xds-bridge/registry"
)

// MarkKey is the name under which every format stores the mark: a URL query
// parameter or a metadata key.
const MarkKey = "xdsb"

// KeyDubboRevision is the metadata in which an instance of Dubbo's application-level
// format names the revision of its document.
const KeyDubboRevision = "dubbo.metadata.revision"

// The lengths of the parts of a mark, in bytes.
const (
	OwnerLen     = 6
	BridgeLen    = 3
	MaxHops      = 4
	SignatureLen = 8
)

// signatureSign precedes a signature. It is not a digit of a mark, and no registry
// escapes it.
const signatureSign = "."

// leavingSign follows the path of a mark whose owner is about to delete the entry. It
// is not a digit of a mark, so that versions that do not know it read no mark.
const leavingSign = "x"

// ErrMark is wrapped by every error about a mark that cannot be read.
var ErrMark = errors.New("not an owner mark")

// Mark names the owner of an entry and the registries that the entry passed. Its parts
// are written without separators:
//
//	owner bridge [hop]… [x] [.signature]
//
// The x says that the owner is about to delete the entry. The signature is that of a
// Signer. A mark has at most 35 bytes of [0-9a-vx.], which are not escaped in a URL, a
// label or a JSON string. All replicas write the same mark.
type Mark struct {
	Owner     string // Fingerprint of the owner id, OwnerLen bytes
	Bridge    string // Fingerprint of the bridge's name, BridgeLen bytes
	Path      registry.Path
	Leaving   bool   // see Leave
	Signature string // SignatureLen bytes, or empty; see Signer
}

// NewMark returns the mark of a bridge without a path.
func NewMark(owner, bridge string) Mark {
	return Mark{Owner: OwnerMark(owner), Bridge: Fingerprint(bridge, BridgeLen)}
}

// ownerPrefix begins the name of an owner of which only the mark is known. A configured
// owner has no colon.
const ownerPrefix = "mark:"

// OwnerMark returns the Mark.Owner of an owner. The owner may be a result of
// UnnamedOwner.
func OwnerMark(owner string) string {
	if mark, ok := strings.CutPrefix(owner, ownerPrefix); ok {
		return mark
	}
	return Fingerprint(owner, OwnerLen)
}

// UnnamedOwner returns the name of an owner of which only the Mark.Owner is known.
func UnnamedOwner(mark string) string { return ownerPrefix + mark }

// IsUnnamed reports whether an owner is named by its mark.
func IsUnnamed(owner string) bool {
	mark, ok := strings.CutPrefix(owner, ownerPrefix)
	m, err := ParseMark(mark + "000")
	return ok && err == nil && m.Owner == mark
}

// Of returns the mark with the path of an endpoint, and an empty text for a mark without
// an owner. It fails if the path is too long.
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

// Hop returns the hop of a registry in a path, by the registry's id.
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
	if m.Leaving {
		s += leavingSign
	}
	if m.Signature != "" {
		s += signatureSign + m.Signature
	}
	return s
}

// ParseMark parses a stored mark. The error wraps ErrMark.
func ParseMark(s string) (Mark, error) {
	const fixed = OwnerLen + BridgeLen
	mark, signature, isSigned := strings.Cut(s, signatureSign)
	mark, isLeaving := strings.CutSuffix(mark, leavingSign)
	if len(mark) < fixed || (len(mark)-fixed)%registry.HopLen != 0 || len(mark) > fixed+MaxHops*registry.HopLen ||
		isSigned && len(signature) != SignatureLen {
		return Mark{}, fmt.Errorf("%w: %.80q: %d bytes long", ErrMark, s, len(s))
	}
	for _, r := range mark + signature {
		if (r < '0' || r > '9') && (r < 'a' || r > 'v') {
			return Mark{}, fmt.Errorf("%w: %q: %q is not a digit of a mark", ErrMark, s, r)
		}
	}
	m := Mark{
		Owner: mark[:OwnerLen], Bridge: mark[OwnerLen:fixed], Path: registry.Path(mark[fixed:]),
		Leaving: isLeaving, Signature: signature,
	}
	return m, nil
}

// Leave returns an entry whose mark says that the owner is about to delete it. Another
// owner that waits for the key may then store its own entry before the deletion. An
// entry without a readable mark is returned unchanged.
//
// The signature does not cover this part of the mark: another writer that could add it
// could also delete the entry.
func Leave(e registry.Entry) registry.Entry {
	return Remark(e, func(m Mark) Mark {
		m.Leaving = true
		return m
	})
}

// Remark returns an entry with a changed mark and an updated stamp. An entry without a
// readable mark is returned unchanged.
func Remark(e registry.Entry, change func(Mark) Mark) registry.Entry {
	from, to, ok := markIn(e.Value)
	if !ok {
		return e
	}
	m, err := ParseMark(e.Value[from:to])
	if err != nil {
		return e
	}
	e.Value = Stamp(e.Value[:from] + change(m).String() + e.Value[to:])
	return e
}

// MarkOf returns the mark in the value of an entry. The error wraps ErrMark. Endpoints
// of a ServiceEntry have no marks: their head has it.
func MarkOf(e registry.Entry) (Mark, error) {
	from, to, ok := markIn(e.Value)
	if !ok {
		return Mark{}, fmt.Errorf("%w: missing", ErrMark)
	}
	return ParseMark(e.Value[from:to])
}

// Bare returns an entry without its mark and with an updated stamp. Entries that differ
// only in their marks have equal results, even if another tool removed a mark.
func Bare(e registry.Entry) registry.Entry {
	e.Value = Stamp(unmarked(e.Value))
	return e
}

func unmarked(v string) string {
	from, to, ok := markIn(v)
	if !ok {
		return v
	}
	if isJSON(v) {
		from, to = strings.LastIndexByte(v[:from-len(`":"`)], '"'), to+1
		switch {
		case strings.HasPrefix(v[to:], ","):
			to++
		case strings.HasSuffix(v[:from], ","):
			from--
		}
	} else {
		from -= len(urlMark)
		if to < len(v) {
			to++ // the & after it; the separator before it is kept
		} else {
			from--
		}
	}
	return v[:from] + v[to:]
}

// HostOf returns the mesh host address fqdn:port that an entry came from. It is empty if
// the entry names none.
func HostOf(e registry.Entry) string {
	from, to, _ := fieldIn(e.Value, "meshHostAddr")
	return e.Value[from:to]
}

// urlMark begins the mark in a URL. In canonical JSON the mark is a field.
const urlMark = MarkKey + "="

// MarkAnnotation is the annotation of Kubernetes objects that holds the mark.
const MarkAnnotation = "xds-bridge/mark"

func isJSON(value string) bool { return strings.HasPrefix(value, "{") }

// markIn returns the offsets of the mark in a value; false if it has none.
func markIn(value string) (from, to int, ok bool) {
	if from, to, ok = fieldIn(value, MarkKey); !ok && isJSON(value) {
		return fieldIn(value, MarkAnnotation)
	}
	return from, to, ok
}

// fieldIn returns the offsets of the text of a parameter or a field in a value; false if
// the value has no such key.
func fieldIn(value, key string) (from, to int, ok bool) {
	if isJSON(value) {
		inJSON := `"` + key + `":"`
		i := strings.Index(value, inJSON)
		if i < 0 {
			return 0, 0, false
		}
		from = i + len(inJSON)
		n := strings.IndexByte(value[from:], '"')
		return from, from + n, n >= 0
	}
	for rest := value; ; {
		i := strings.Index(rest, key+"=")
		if i < 0 {
			return 0, 0, false
		}
		rest = rest[i+len(key)+1:]
		from = len(value) - len(rest)
		if before := from - len(key) - 2; before >= 0 && (value[before] == '?' || value[before] == '&') {
			to, _, _ := strings.Cut(rest, "&")
			return from, from + len(to), true
		}
	}
}

// StampKey is the parameter of a provider's URL that holds a stamp. Dubbo itself writes
// the time at which the provider started.
const StampKey = "timestamp"

// NoStamp is the value of StampKey before Stamp replaces it.
const NoStamp = "0000000000"

// The stamps are times long ago: from 2001 to 2010 as dubbo-go's seconds, and in January
// 1970 as Java's milliseconds. Consumers send fewer calls to a provider that has just
// started.
const (
	firstStamp = 1_000_000_000
	stamps     = 1 << 28
)

// Stamp returns a provider's URL with its stamp, a hash of the URL without the stamp. A
// URL without a place for a stamp is returned unchanged.
//
// dubbo-go keys providers by address, interface and timestamp. If two nodes have the
// same key, the deletion of one of them removes the provider from dubbo-go's list. A
// stamp changes with every other part of the URL, and is the same on every replica.
func Stamp(url string) string {
	from := stampIn(url)
	if from < 0 {
		return url
	}
	b := []byte(url)
	PutStamp(b, from)
	return string(b)
}

// PutStamp is like Stamp. It writes the stamp into the URL, at a known offset.
func PutStamp(url []byte, offset int) {
	before, after := url[:offset], url[offset+len(NoStamp):]
	strconv.AppendUint(before, firstStamp+fnv64a(before, after)%stamps, 10) // it has as many digits as NoStamp
}

// fnv64a returns the FNV-1a hash of texts, like hash/fnv, without copying them.
func fnv64a(texts ...[]byte) uint64 {
	h := uint64(14695981039346656037)
	for _, t := range texts {
		for _, c := range t {
			h = (h ^ uint64(c)) * 1099511628211
		}
	}
	return h
}

// stampIn returns the offset of the stamp in a URL, or -1 if it has none. The & in a
// value is always escaped.
func stampIn(url string) int {
	if isJSON(url) {
		return -1
	}
	const sep = StampKey + "="
	i := max(strings.Index(url, "?"+sep), strings.Index(url, "&"+sep))
	if i < 0 {
		return -1
	}
	from := i + 1 + len(sep)
	value, _, _ := strings.Cut(url[from:], "&")
	if len(value) != len(NoStamp) || strings.Trim(value, "0123456789") != "" {
		return -1 // the provider's start time in milliseconds, or another text
	}
	return from
}

// SignedLen is the number of bytes that a signature adds to a mark.
const SignedLen = len(signatureSign) + SignatureLen

// A Signer signs marks with a secret, so that other writers cannot forge an entry of
// ours. The nil Signer signs nothing and trusts every mark.
type Signer struct{ keys [][]byte }

// NewSigner returns a signer that signs with the first key and accepts signatures of all
// keys, so that keys can be rotated. It returns nil without keys.
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

// Sign returns an entry with its mark signed. An entry without a mark is returned
// unchanged.
func (s *Signer) Sign(e registry.Entry) registry.Entry {
	if s == nil {
		return e
	}
	return Remark(e, func(m Mark) Mark {
		m.Signature = sign(s.keys[0], e, m)
		return m
	})
}

// Refuse returns why the mark of an entry is not trusted. It is empty if the mark is
// trusted.
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

// Disowned returns the results of Signer.Owner for entries with the mark of an owner
// that is not trusted.
func Disowned(owner string) []string {
	return []string{owner + " (" + unsigned + ")", owner + " (" + otherKey + ")"}
}

// The reasons not to trust a mark.
const (
	unsigned = "not signed"
	otherKey = "signed with another key"
)

// Owner returns the registry.Stored.Owner of an entry with a mark. If the mark is ours
// and not trusted, that is another owner, whose name includes the reason.
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

// Tags returns hashes of an entry without its mark. By a tag the entry is recognised if
// another tool removed the mark. There is one tag for each key of the signer, and the
// first is that of the first key.
func (s *Signer) Tags(e registry.Entry) [][TagLen]byte {
	keys := [][]byte{nil}
	if s != nil {
		keys = s.keys
	}
	tags := make([][TagLen]byte, 0, len(keys))
	for _, k := range keys {
		mac := hmac.New(sha256.New, k)
		for _, part := range []string{
			"xdsb1 tag", e.Group.Kind, e.Group.Namespace, e.Group.Group, e.Group.Name, e.Key, Bare(e).Value,
		} {
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
