package naming

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"strconv"
	"strings"
)

// MeshHosts maps the services of one registry to their hosts in the mesh:
//
//	<name>.<shape>.<registry>.<suffix>
//
// The name is the native name, escaped label by label. The shape counts the labels at the
// end of the name that are version and group of a Dubbo interface, and contains the
// protocol. Endpoints of two protocols have two hosts, because all endpoints of a host in
// the mesh have the same ports. All hosts of a registry end in its label and the suffix.
//
// Lower-case letters and digits are kept. Any other character is escaped by a hyphen and
// another character. A label that would begin with a hyphen or an x gets an x in front.
// So org.acme.GreetService is org.acme.x-greet-service.
type MeshHosts struct {
	Registry string // a DNS label
	Suffix   string // a DNS name, such as bridge.internal
}

const (
	kindMeshHost = "mesh host"
	shapeName    = "s" // a name without parts: s or s-tri
	shapeKey     = "k" // an interface with version and group: k3-1 or k3-1-tri
	shapeShort   = "h" // a name that was too long: its beginning and its hash
)

// ErrShortened is returned by Parse for a name that was too long for a host. The full
// name is stored together with the host.
var ErrShortened = errors.New("the name was shortened")

// Check returns why the registry label or the suffix is invalid.
func (m MeshHosts) Check() error {
	if !dnsLabel(m.Registry) || strings.ToLower(m.Registry) != m.Registry {
		return bad(kindMeshHost, m.Registry, "the registry is not a DNS label in lower case")
	}
	if reason := hostProblem(m.Suffix); reason != "" || strings.ToLower(m.Suffix) != m.Suffix {
		return bad(kindMeshHost, m.Suffix, "the suffix is not a DNS name in lower case")
	}
	if len(m.Registry)+len(m.Suffix) > maxHost/2 {
		return bad(kindMeshHost, m.Registry+"."+m.Suffix, "registry and suffix leave no room for names")
	}
	return nil
}

// MeshName is the native name of a host of MeshHosts.
type MeshName struct {
	Key      ServiceKey // the zero value if Name is set
	Name     string     // of an application, or of anything else that is not an interface
	Protocol string     // of the registry; may be empty
}

// Of returns the host of a name. The category of a key is not part of it.
func (m MeshHosts) Of(n MeshName) string {
	if n.Name != "" {
		return m.host(escapeLabels(n.Name), shapeName+protocolShape(n.Protocol), n.Name)
	}
	k := n.Key
	labels := escapeLabels(k.Interface)
	version, group := optionalLabels(k.Version), optionalLabels(k.Group)
	labels = append(append(labels, version...), group...)
	shape := shapeKey + strconv.FormatInt(int64(len(version)), 36) + "-" + strconv.FormatInt(int64(len(group)), 36)
	return m.host(labels, shape+protocolShape(n.Protocol), k.Interface+"\x00"+k.Version+"\x00"+k.Group)
}

func protocolShape(protocol string) string {
	if protocol == "" {
		return ""
	}
	return "-" + escapeLabel(protocol)
}

// Has reports whether a host belongs to this registry.
func (m MeshHosts) Has(host string) bool { return strings.HasSuffix(host, m.tail()) }

// Parse returns the name of a host. The error is an *Error or ErrShortened.
func (m MeshHosts) Parse(host string) (MeshName, error) {
	rest, ok := strings.CutSuffix(host, m.tail())
	if !ok {
		return MeshName{}, bad(kindMeshHost, host, "does not end in "+m.tail())
	}
	at := strings.LastIndexByte(rest, '.')
	if at < 0 {
		return MeshName{}, bad(kindMeshHost, host, "has no name")
	}
	labels, shape := strings.Split(rest[:at], "."), rest[at+1:]
	if shape == shapeShort {
		return MeshName{}, ErrShortened
	}
	n, ok := parseShape(labels, shape)
	if !ok || m.Of(n) != host {
		return MeshName{}, bad(kindMeshHost, host, "is not a host of MeshHosts")
	}
	return n, nil
}

func parseShape(labels []string, shape string) (n MeshName, ok bool) {
	kind, protocol, _ := strings.Cut(shape, "-")
	if kind == shapeName {
		n.Name, ok = unescapeLabels(labels)
		n.Protocol, _ = unescapeLabel(protocol)
		return n, ok && n.Name != ""
	}
	groupCount, protocol, _ := strings.Cut(protocol, "-")
	versions, err1 := strconv.ParseUint(strings.TrimPrefix(kind, shapeKey), 36, 8)
	groups, err2 := strconv.ParseUint(groupCount, 36, 8)
	at := len(labels) - int(versions) - int(groups)
	if !strings.HasPrefix(kind, shapeKey) || err1 != nil || err2 != nil || at < 1 {
		return MeshName{}, false
	}
	var ok1, ok2, ok3 bool
	n.Key.Category = Providers
	n.Key.Interface, ok1 = unescapeLabels(labels[:at])
	n.Key.Version, ok2 = unescapeLabels(labels[at : at+int(versions)])
	n.Key.Group, ok3 = unescapeLabels(labels[at+int(versions):])
	n.Protocol, _ = unescapeLabel(protocol)
	return n, ok1 && ok2 && ok3
}

func (m MeshHosts) tail() string { return "." + m.Registry + "." + m.Suffix }

// host returns the host of a name. If the labels do not fit, it shortens the name to its
// beginning and its hash.
func (m MeshHosts) host(labels []string, shape, name string) string {
	host := strings.Join(labels, ".") + "." + shape + m.tail()
	fits := len(host) <= maxHost && len(shape) <= maxLabel
	for _, label := range labels {
		fits = fits && len(label) <= maxLabel
	}
	if fits {
		return host
	}
	// Only the hash distinguishes names; the beginning is for readers.
	sum := sha256.Sum256([]byte(shape + "\x00" + name))
	hash := strings.ToLower(base32.HexEncoding.EncodeToString(sum[:20]))
	readable := strings.Trim(strings.Join(labels, "-"), "-")
	return readable[:min(len(readable), maxLabel-len(hash)-1)] + "-" + hash + "." + shapeShort + m.tail()
}

func optionalLabels(s string) []string {
	if s == "" {
		return nil
	}
	return escapeLabels(s)
}

func escapeLabels(s string) []string {
	labels := strings.Split(s, ".")
	for i, label := range labels {
		labels[i] = escapeLabel(label)
	}
	return labels
}

// escapes are the characters that are escaped by a hyphen and their index. Capitals are
// escaped by a hyphen and the letter, other bytes by escapedByte and two hexadecimal
// digits.
const (
	escapes     = "-_$:"
	escapedByte = '9'
)

func escapeLabel(label string) string {
	var b strings.Builder
	for i := range len(label) {
		b.WriteString(escape(label[i]))
	}
	escaped := b.String()
	if escaped == "" || escaped[0] == '-' || escaped[0] == 'x' {
		escaped = "x" + escaped
	}
	return escaped
}

func escape(c byte) string {
	const hex = "0123456789abcdef"
	switch at := strings.IndexByte(escapes, c); {
	case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		return string(rune(c))
	case c >= 'A' && c <= 'Z':
		return "-" + string(rune(c+'a'-'A'))
	case at >= 0:
		return "-" + strconv.Itoa(at)
	default:
		return string([]byte{'-', escapedByte, hex[c>>4], hex[c&15]})
	}
}

func unescapeLabels(labels []string) (string, bool) {
	plain := make([]string, len(labels))
	for i, label := range labels {
		p, ok := unescapeLabel(label)
		if !ok {
			return "", false
		}
		plain[i] = p
	}
	return strings.Join(plain, "."), true
}

func unescapeLabel(label string) (string, bool) {
	label = strings.TrimPrefix(label, "x")
	var b strings.Builder
	for label != "" {
		c, n := unescape(label)
		if n == 0 {
			return "", false
		}
		b.WriteByte(c)
		label = label[n:]
	}
	return b.String(), true
}

// unescape returns the first character of an escaped text and the number of bytes that
// encode it. The number is 0 for an invalid text.
func unescape(s string) (c byte, n int) {
	switch {
	case s[0] != '-':
		return s[0], 1
	case len(s) < 2:
		return 0, 0
	case s[1] >= 'a' && s[1] <= 'z':
		return s[1] - 'a' + 'A', 2
	case s[1] >= '0' && int(s[1]-'0') < len(escapes):
		return escapes[s[1]-'0'], 2
	case s[1] != escapedByte || len(s) < 4:
		return 0, 0
	}
	v, err := strconv.ParseUint(s[2:4], 16, 8)
	if err != nil {
		return 0, 0
	}
	return byte(v), 4
}
