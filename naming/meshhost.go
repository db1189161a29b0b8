package naming

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"strconv"
	"strings"
)

// MeshHosts says which hosts the services of one registry get in the mesh:
//
//	<name>.<shape>.<registry>.<suffix>
//
// where name is the native name, label by label, and shape tells how many of
// its last labels are the version and the group of a Dubbo interface, and
// which protocol is spoken there: the endpoints of two protocols are two
// hosts, because all endpoints of a host in the mesh have the same ports.
// Nothing of a registry can have a host outside its own registry label and
// suffix, whatever it is called.
//
// Lower-case letters and digits stand for themselves; every other character
// is a hyphen and the character that escapes it; a label that would begin with a
// hyphen or an x gets an x in front. So org.acme.GreetService becomes
// org.acme.x-greet-service.
type MeshHosts struct {
	Registry string // a DNS label
	Suffix   string // a DNS name, such as bridge.internal
}

const (
	kindMeshHost = "mesh host"
	shapeName    = "s" // a name that has no parts: s or s-tri
	shapeKey     = "k" // an interface with version and group: k3-1 or k3-1-tri
	shapeShort   = "h" // a name that was too long: its beginning and its hash
)

// ErrShortened is returned by Parse for the host of a name that was too long
// to be kept whole; the name stands beside the host where it was written.
var ErrShortened = errors.New("the name was shortened")

// Check returns what is wrong with the registry label or the suffix.
func (m MeshHosts) Check() error {
	if !dnsLabel(m.Registry) || strings.ToLower(m.Registry) != m.Registry {
		return bad(kindMeshHost, m.Registry, "the registry is no DNS label in lower case")
	}
	if reason := hostFault(m.Suffix); reason != "" || strings.ToLower(m.Suffix) != m.Suffix {
		return bad(kindMeshHost, m.Suffix, "the suffix is no DNS name in lower case")
	}
	if len(m.Registry)+len(m.Suffix) > maxHost/2 {
		return bad(kindMeshHost, m.Registry+"."+m.Suffix, "registry and suffix leave no room for names")
	}
	return nil
}

// MeshName is what a host of MeshHosts stands for.
type MeshName struct {
	Key      ServiceKey // the zero value where there is a Name
	Name     string     // of an application or anything else that is no interface
	Protocol string     // as the registry calls it; empty where it does not say
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

// Has reports whether a host is one of this registry's.
func (m MeshHosts) Has(host string) bool { return strings.HasSuffix(host, m.tail()) }

// Parse returns what a host stands for. The error is an *Error or
// ErrShortened.
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
		return MeshName{}, bad(kindMeshHost, host, "was not made here")
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

func (m MeshHosts) host(labels []string, shape, whole string) string {
	host := strings.Join(labels, ".") + "." + shape + m.tail()
	fits := len(host) <= maxHost && len(shape) <= maxLabel
	for _, label := range labels {
		fits = fits && len(label) <= maxLabel
	}
	if fits {
		return host
	}
	// The beginning is for people; the hash alone keeps names apart.
	sum := sha256.Sum256([]byte(shape + "\x00" + whole))
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

// The characters that have an escape of their own besides the letters, and
// the digit that begins the two hexadecimal ones of any other byte.
const (
	escapedHyphen     = '0'
	escapedUnderscore = '1'
	escapedDollar     = '2'
	escapedColon      = '3'
	escapedByte       = '9'
)

func escapeLabel(label string) string {
	const hex = "0123456789abcdef"
	var b strings.Builder
	for i := range len(label) {
		switch c := label[i]; {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteByte(c)
		case c >= 'A' && c <= 'Z':
			b.WriteString("-" + string(c+'a'-'A'))
		case c == '-':
			b.WriteString("-" + string(escapedHyphen))
		case c == '_':
			b.WriteString("-" + string(escapedUnderscore))
		case c == '$':
			b.WriteString("-" + string(escapedDollar))
		case c == ':':
			b.WriteString("-" + string(escapedColon))
		default:
			b.Write([]byte{'-', escapedByte, hex[c>>4], hex[c&15]})
		}
	}
	escaped := b.String()
	if escaped == "" || escaped[0] == '-' || escaped[0] == 'x' {
		escaped = "x" + escaped
	}
	return escaped
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
	for i := 0; i < len(label); i++ {
		if label[i] != '-' {
			b.WriteByte(label[i])
			continue
		}
		if i++; i == len(label) {
			return "", false
		}
		switch c := label[i]; {
		case c >= 'a' && c <= 'z':
			b.WriteByte(c - 'a' + 'A')
		case c == escapedHyphen:
			b.WriteByte('-')
		case c == escapedUnderscore:
			b.WriteByte('_')
		case c == escapedDollar:
			b.WriteByte('$')
		case c == escapedColon:
			b.WriteByte(':')
		case c == escapedByte && i+2 < len(label):
			v, err := strconv.ParseUint(label[i+1:i+3], 16, 8)
			if err != nil {
				return "", false
			}
			b.WriteByte(byte(v))
			i += 2
		default:
			return "", false
		}
	}
	return b.String(), true
}
